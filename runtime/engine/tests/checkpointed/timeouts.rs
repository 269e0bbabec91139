//! [TPL-15] Transactions must outlive what they may have to.

use std::time::Duration;

use levada_engine::JobError;
use levada_engine::checkpoint::CheckpointSettings;

use crate::scene::{Scene, all, chain, restarts};

const SECOND: Duration = Duration::from_secs(1);

/// [TPL-15] Timeout ≥ interval + checkpoint timeout + stated downtime, to the millisecond; the message has every number, and nothing
/// was asked of the target or changed in it.
#[tokio::test(start_paused = true)]
async fn a_start_is_refused_when_transactions_time_out_before_they_may_be_committed() {
    let settings = CheckpointSettings {
        interval: Some(SECOND * 60),
        timeout: SECOND * 600,
        ..CheckpointSettings::default()
    };
    for (timeout, is_enough) in [(Some(4260), true), (None, true), (Some(4259), false)] {
        let scene = Scene::new().await;
        scene.with_pending().await;
        scene.target.lock().timeout = timeout.map(|timeout| SECOND * timeout);
        let job = scene.job(2).checkpoints(settings).downtime(SECOND * 3600).restarts(restarts(5));
        let outcome = scene.finish(job).await;
        if is_enough {
            outcome.unwrap();
            assert_eq!(scene.target.visible(), all());
            continue;
        }
        let error = outcome.unwrap_err();
        assert!(matches!(&error, JobError::TransactionTimeout { uid, .. } if uid == "table"), "{error:?}");
        let text = chain(&error);
        for number in ["4259s", "4260s", "60s", "600s", "3600s"] {
            assert!(text.contains(number), "{number} is not in: {text}");
        }
        assert_eq!(scene.target.take_calls(), ["open table"], "once, and nothing after it");
    }
}

/// [TPL-15] Checkpoints on request have no interval, and no downtime was stated: the checkpoint's own timeout counts.
#[tokio::test(start_paused = true)]
async fn without_interval_and_downtime_the_checkpoint_timeout_must_fit() {
    for (timeout, is_enough) in [(600, true), (599, false)] {
        let scene = Scene::new().await;
        scene.target.lock().timeout = Some(SECOND * timeout);
        assert_eq!(scene.finish(scene.job(2)).await.is_ok(), is_enough);
    }
}
