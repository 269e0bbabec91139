//! What is logged, by the sink and by the driver beneath it. A process has one logger, so this test is alone.

#[path = "sink/scene.rs"]
#[allow(dead_code, reason = "shared with the other tests, which use all of it")]
mod scene;

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use levada_core::{AtomicSink, ErrorChain, Value};
use tracing_subscriber::fmt::MakeWriter;

use scene::{Scene, assignment, connect, opened, ready, send, text, upsert};

#[derive(Debug, Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl io::Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("one writer at a time").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Memory {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// [PGS-38] at the most talkative level: no row value, no password, no query of somebody else.
#[tokio::test(flavor = "multi_thread")]
async fn logs_hold_no_value_and_no_secret() {
    let memory = Memory::default();
    tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(memory.clone()).init();

    let scene = Scene::new(
        "create table t (id text primary key, a text check (a <> 'hunter2-bad'));
         create function talk() returns trigger language plpgsql as $$ begin
             raise warning 'row is %', new;
             if new.a = 'hunter2-forbidden' then raise 'not for %', new using errcode = '42501'; end if;
             return new;
         end $$;
         create trigger talking before insert on t for each row execute function talk()",
    );
    let password =
        scene.database.url().split(':').nth(2).and_then(|rest| rest.split('@').next()).map(str::to_owned);
    let password = password.expect("a password in the URL");
    let mut sink = ready(scene.upsert("t").key(["id"])).await;
    let change = |a: &str| {
        vec![upsert(&[("id", text("hunter2-key"))], &[("a", text(a)), ("unknown", text("hunter2"))])]
    };
    send(&mut sink, 0, change("hunter2-good")).await.expect("commit");
    send(&mut sink, 1, change("hunter2-bad")).await.expect_err("the check");
    sink.discard();
    let raised = send(&mut sink, 1, change("hunter2-forbidden")).await.expect_err("the trigger");
    assert!(!ErrorChain(&raised).to_string().contains("hunter2"), "{}", ErrorChain(&raised));
    sink.discard();
    let number =
        vec![upsert(&[("id", text("x"))], &[("a", Value::Bytes(levada_core::Slice::owned(*b"hunter2")))])];
    send(&mut sink, 1, number).await.expect_err("bytes into text");
    scene.end_backends("levada/job/0");
    send(&mut sink, 1, change("hunter2-good")).await.expect("commit");

    let foreign = connect(scene.database.url(), "foreign").await;
    foreign
        .batch_execute("begin; select 'hunter2-query' from levada.positions for update")
        .await
        .expect("a lock");
    let mut config = scene.upsert("t").key(["id"]);
    config.claim_timeout = Duration::from_millis(500);
    config.claim_patience = Duration::from_millis(100);
    config.max_retries = 0;
    let mut blocked = opened(config).await;
    blocked.claim(&assignment(1)).await.expect_err("blocked");

    let logged = String::from_utf8(memory.0.lock().expect("the log").clone()).expect("text");
    let of_the_sink: String = logged
        .lines()
        .filter(|line| line.contains("levada_postgres") || line.contains("tokio_postgres"))
        .collect();
    for expected in ["degraded", "no column for this field", "a claim waits"] {
        assert!(of_the_sink.contains(expected), "{expected} in {logged}");
    }
    // What this test's own second connection does is its own affair.
    let without_the_scene = logged.lines().filter(|line| !line.contains("select 'hunter2-query'"));
    let leak = without_the_scene.clone().find(|line| line.contains("hunter2") || line.contains(&password));
    assert_eq!(leak, None);
}
