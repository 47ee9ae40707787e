//! One pool of libpmemobj: its allocations.
//!
//! # Safety
//!
//! 1. `pool` is an open pool until it is closed in `drop`.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_int};
use std::path::Path;

use super::api::{Api, Oid, PoolPtr};
use crate::rival::Absent;

/// A pool, in a file that is removed with it.
pub(crate) struct Pool {
    api: &'static Api,
    pool: PoolPtr,
}

impl Pool {
    /// A new pool of `bytes` bytes in the file `path`, every page touched.
    ///
    /// # Errors
    /// The library is missing, or refuses.
    pub(crate) fn create(path: &Path, bytes: usize) -> Result<Self, Absent> {
        let api = Api::get()?;
        let name = CString::new(path.as_os_str().as_encoded_bytes())
            .map_err(|_| format!("{} is no name for a pool", path.display()))?;
        let mut yes: c_int = 1;
        // SAFETY: 1: a setting of the library, with the type its manual names.
        unsafe { (api.ctl_set)(std::ptr::null_mut(), c"prefault.at_create".as_ptr(), (&raw mut yes).cast()) };
        // SAFETY: 1: C strings.
        let pool = unsafe { (api.create)(name.as_ptr(), c"wattkeep-bench".as_ptr(), bytes, 0o600) };
        if pool.is_null() {
            return Err(refused(api, "making a pool of libpmemobj"));
        }
        Ok(Self { api, pool })
    }

    /// `bytes` bytes, allocated and durable.
    #[inline]
    pub(super) fn alloc(&mut self, bytes: usize) -> Result<Oid, Absent> {
        let mut oid = Oid::NULL;
        // SAFETY: 1.
        let failed =
            unsafe { (self.api.alloc)(self.pool, &raw mut oid, bytes, 0, None, std::ptr::null_mut()) };
        if failed == 0 { Ok(oid) } else { Err(refused(self.api, "allocating from libpmemobj")) }
    }

    /// Frees what [`Self::alloc`] gave.
    #[inline]
    pub(super) fn free(&mut self, mut oid: Oid) {
        // SAFETY: 1: null is allowed.
        unsafe { (self.api.free)(&raw mut oid) };
    }
}

#[cold]
fn refused(api: &Api, doing: &str) -> Absent {
    // SAFETY: 1: a C string of this thread, valid until the next call.
    let why = unsafe { CStr::from_ptr((api.errormsg)()) };
    format!("{doing}: {}", why.to_string_lossy())
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: 1: closed once.
        unsafe { (self.api.close)(self.pool) };
    }
}
