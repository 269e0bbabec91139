//! Fail points in tests: whose turn it is, and what happens at a step.

use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};

/// Held by a test for as long as it uses fail points; removes them all when it ends.
pub(crate) struct Turn(#[allow(dead_code, reason = "held for its drop")] MutexGuard<'static, ()>);

impl Turn {
    pub(crate) fn wait() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        Self(TURN.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        for (name, _) in fail::list() {
            fail::remove(name);
        }
    }
}

/// Runs `action` once, the first time that a point is passed.
pub(crate) fn once(point: &str, action: impl FnOnce() + Send + 'static) {
    let action = Mutex::new(Some(action));
    fail::cfg_callback(point, move || {
        let action = action.lock().expect("one caller").take();
        if let Some(action) = action {
            action();
        }
    })
    .expect("a fail point");
}

/// Stops whoever passes a point, until the returned sender is used or dropped.
pub(crate) fn hold_at(point: &str) -> (mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (reached, is_reached) = mpsc::channel();
    let (go_on, wait) = mpsc::channel::<()>();
    once(point, move || {
        let _ = reached.send(());
        let _ = wait.recv();
    });
    (is_reached, go_on)
}
