//! Scenarios as tests.

use std::future::Future;

use crate::failure::Failure;

/// Runs a scenario to its end, on a runtime of its own. What the macros make of each scenario.
///
/// # Panics
/// With the failure, if there is one.
pub fn verify(scenario: impl Future<Output = Result<(), Failure>>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => panic!("no runtime: {error}"),
    };
    if let Err(failure) = runtime.block_on(scenario) {
        panic!("{failure}");
    }
}

/// Makes a test of each scenario of a template. The target's expression is evaluated anew in each, inside its runtime.
#[doc(hidden)]
#[macro_export]
macro_rules! scenario_tests {
    ($template:ident, $target:expr; $($scenario:ident)*) => {$(
        #[test]
        fn $scenario() {
            $crate::verify(async {
                let target = $target;
                $crate::$template::$scenario(&target).await
            });
        }
    )*};
}

/// Makes a function that runs all scenarios of a template, and the list of their names.
macro_rules! scenario_list {
    ($target:ident; $($scenario:ident)*) => {
        /// The names of all scenarios, in the order in which [`all`] runs them.
        pub const SCENARIOS: &[&str] = &[$(stringify!($scenario)),*];

        /// Runs all scenarios, one after the other, on one target.
        ///
        /// # Errors
        /// The first scenario that fails; those behind it are not run.
        pub async fn all<T: $target>(target: &T) -> Result<(), $crate::Failure> {
            $(Box::pin($scenario(target)).await?;)*
            Ok(())
        }
    };
}
pub(crate) use scenario_list;
