//! The common part of the tiers' handles: the engine, the tenant, and a share in keeping the engine open.

use crate::engine::inner::Inner;
use crate::engine::names::TenantHandle;
use std::fmt;
use std::sync::Arc;

/// The engine, and the tenant for which it is called.
#[derive(Clone)]
pub(crate) struct Handle {
    pub(crate) inner: Arc<Inner>,
    pub(crate) tenant: TenantHandle,
    /// When the last handle is dropped, transfers that have not begun are cancelled.
    _users: Arc<Users>,
}

/// All handles of one engine.
struct Users(Arc<Inner>);

impl Drop for Users {
    fn drop(&mut self) {
        if self.0.is_inherited() {
            return self.0.keep();
        }
        self.0.with(|traffic| traffic.close(&self.0));
        self.0.runtime.closed();
    }
}

impl Handle {
    /// Returns the first handle of an engine, for no tenant.
    pub(crate) fn over(inner: Arc<Inner>) -> Handle {
        let users = Arc::new(Users(Arc::clone(&inner)));
        Handle { inner, tenant: TenantHandle::default(), _users: users }
    }

    /// Returns a handle of the same engine for this tenant.
    pub(crate) fn of_tenant(&self, tenant: TenantHandle) -> Handle {
        Handle { tenant, ..self.clone() }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({:?} of {:?})", self.tenant.id(), self.inner)
    }
}
