//! Named spots in the code where a test can stop a thread. They do nothing in other builds.

#[cfg(any(not(test), feature = "shuttle"))]
pub(crate) struct Hooks;

#[cfg(any(not(test), feature = "shuttle"))]
impl Hooks {
    pub fn new() -> Hooks {
        Hooks
    }

    #[inline(always)]
    pub fn reached(&self, _spot: &'static str) {}
}

#[cfg(all(test, not(feature = "shuttle")))]
type Hook = std::sync::Arc<dyn Fn() + Send + Sync>;

/// The function to call at each spot.
#[cfg(all(test, not(feature = "shuttle")))]
#[derive(Default)]
pub(crate) struct Hooks {
    calls: parking_lot::Mutex<std::collections::BTreeMap<&'static str, Hook>>,
}

#[cfg(all(test, not(feature = "shuttle")))]
impl Hooks {
    pub fn new() -> Hooks {
        Hooks::default()
    }

    pub fn reached(&self, spot: &'static str) {
        let hook = self.calls.lock().get(spot).cloned();
        if let Some(hook) = hook {
            hook();
        }
    }

    /// Calls `hook` whenever a thread reaches `spot`.
    pub fn set(&self, spot: &'static str, hook: impl Fn() + Send + Sync + 'static) {
        self.calls.lock().insert(spot, std::sync::Arc::new(hook));
    }

    pub fn clear(&self) {
        self.calls.lock().clear();
    }
}
