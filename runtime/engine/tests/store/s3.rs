//! What a server of the S3 protocol must be like. The other tests of the store run on it as on every place.

use std::env;

use levada_core::ErrorChain;
use levada_engine::store::{Store, StoreError};

use crate::places::S3_STORE;

fn bucket() -> String {
    env::var(S3_STORE).expect(".ci/s3/run sets it")
}

/// [CHK-15] A bucket that overwrites what is there is refused, and so is one that only looks before it writes.
#[tokio::test]
#[ignore = "needs a server; .ci/s3/run starts one"]
async fn a_server_that_does_not_create_conditionally_is_refused() {
    for place in ["s3://ignores-the-condition", "s3://looks-then-writes"] {
        let error = Store::open(place).await.unwrap_err();
        assert!(matches!(error, StoreError::NotConditional { .. }), "{place}: {error:?}");
        assert!(error.to_string().starts_with(place), "{error}");
    }
    Store::open(&bucket()).await.expect("one that does is taken");
}

/// [CHK-18] A bucket that does not exist is no empty store.
#[tokio::test]
#[ignore = "needs a server; .ci/s3/run starts one"]
async fn a_missing_bucket_is_an_error_and_no_empty_store() {
    let missing = Store::open_to_read("s3://no-such-bucket/store").unwrap();
    let error = missing.list().await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { action: "list", .. }), "{error:?}");
    let told = ErrorChain(&error).to_string();
    assert_eq!(told.matches("NoSuchBucket").count(), 1, "said once: {told}");
    let empty = Store::open_to_read(&format!("{}/never-used", bucket())).unwrap();
    assert_eq!(empty.list().await.unwrap().rows.len(), 0);
}
