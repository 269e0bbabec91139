//! The end of a transaction that was prepared here.

use super::error::WriterError;
use super::misuse::Misuse;
use super::running::Running;
use crate::sink::recovery::TransactionHandle;

impl Running {
    pub(super) async fn commit(&mut self, handle: &TransactionHandle) -> Result<(), WriterError> {
        let oldest = self.prepared.front().map(|(oldest, _)| oldest);
        self.check_order(handle, oldest, "committed")?;
        self.resolver.commit(handle).await?;
        if let Some((_, slot)) = self.prepared.pop_front()
            && let Some(before) = self.committed.replace(slot)
        {
            self.slots.free(before);
        }
        Ok(())
    }

    pub(super) async fn abort(&mut self, handle: &TransactionHandle) -> Result<(), WriterError> {
        let newest = self.prepared.back().map(|(newest, _)| newest);
        self.check_order(handle, newest, "aborted")?;
        self.resolver.abort(handle).await?;
        // Its id is not used again: the coordinator remembers that it was aborted, and no later marker says otherwise.
        drop(self.prepared.pop_back());
        Ok(())
    }

    /// The whole handle counts: one that differs in anything is another's.
    fn check_order(
        &self,
        handle: &TransactionHandle,
        due: Option<&TransactionHandle>,
        how: &'static str,
    ) -> Result<(), Misuse> {
        let transaction = handle.to_string();
        match due {
            Some(due) if due == handle => Ok(()),
            Some(due) if self.handles().any(|waiting| waiting == handle) => {
                Err(Misuse::OutOfOrder { transaction, how, before: due.to_string() })
            }
            _ => Err(Misuse::NotPrepared { transaction }),
        }
    }
}
