//! Whom the server runs as: Postgres and PgBouncer refuse to be root.

use nix::unistd::{Uid, User as Account};

use crate::Error;
use crate::process::User;

/// Returns the user to run as, or `None` to stay who we are: as root it is `postgres`, else `nobody`.
pub(crate) fn server_user() -> Result<Option<User>, Error> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    let account = ["postgres", "nobody"].into_iter().find_map(|name| Account::from_name(name).ok().flatten());
    match account {
        Some(account) => Ok(Some(User { uid: account.uid.as_raw(), gid: account.gid.as_raw() })),
        None => Err(Error::NoUnprivilegedUser),
    }
}
