//! One pool of libpmemobj: allocations, transactions, and its bytes by offset.
//!
//! # Safety
//!
//! 1. `pool` is an open pool of `bytes` bytes, mapped from its address on, until it is closed in `drop`.
//! 2. One thread uses it: `Pool` is neither `Send` nor `Sync`, and writes take it exclusively.
//! 3. Transaction calls are made between a begin and an end on this thread only. Without a jump buffer a
//!    failed call returns its error, and the stage says that the transaction is over.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::path::Path;

use wattkeep_persist::{Pod, bytemuck};

use super::api::{Api, ClassDescription, HEADER_NONE, Oid, PARAM_NONE, PoolPtr, STAGE_WORK};
use crate::rival::Absent;

/// Objects that a class fetches from the heap at once.
const UNITS_PER_BLOCK: c_uint = 4096;

/// A pool, in a file that is removed with it.
pub(crate) struct Pool {
    api: &'static Api,
    pool: PoolPtr,
    bytes: usize,
}

/// Which allocation class objects come from: the flags of an allocation.
#[derive(Clone, Copy)]
pub(super) struct Class(u64);

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
        Ok(Self { api, pool, bytes })
    }

    /// A class of objects of `bytes` bytes without headers: the leanest that the library has.
    pub(super) fn class(&mut self, bytes: usize) -> Result<Class, Absent> {
        let mut description = ClassDescription {
            unit_bytes: bytes,
            alignment: 0,
            units_per_block: UNITS_PER_BLOCK,
            header: HEADER_NONE,
            class: 0,
        };
        let argument: *mut c_void = (&raw mut description).cast();
        // SAFETY: 1: the argument is what the manual asks for.
        let failed =
            unsafe { (self.api.ctl_set)(self.pool, c"heap.alloc_class.new.desc".as_ptr(), argument) };
        if failed != 0 {
            return Err(refused(self.api, "making an allocation class of libpmemobj"));
        }
        Ok(Class(u64::from(description.class) << 48))
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

    /// The root object, made with `bytes` zero bytes.
    pub(super) fn root(&mut self, bytes: usize) -> Result<Oid, Absent> {
        // SAFETY: 1.
        let oid = unsafe { (self.api.root)(self.pool, bytes) };
        if oid.offset == 0 { Err(refused(self.api, "making the root of libpmemobj")) } else { Ok(oid) }
    }

    /// The `len` bytes at `offset` of the pool.
    #[inline]
    pub(super) fn bytes(&self, offset: u64, len: usize) -> &[u8] {
        let at = self.inside(offset, len);
        // SAFETY: 1, 2: inside the pool, and nothing writes while it is borrowed.
        unsafe { std::slice::from_raw_parts(self.pool.cast::<u8>().add(at), len) }
    }

    /// The value at `offset` of the pool.
    #[inline]
    pub(super) fn read<T: Pod>(&self, offset: u64) -> T {
        bytemuck::pod_read_unaligned(self.bytes(offset, size_of::<T>()))
    }

    #[inline]
    fn inside(&self, offset: u64, len: usize) -> usize {
        let at = usize::try_from(offset).expect("an offset inside a mapping fits an index");
        assert!(at <= self.bytes && len <= self.bytes - at);
        at
    }

    /// Runs `change` in one transaction; an error aborts it.
    #[inline]
    pub(super) fn transaction(
        &mut self,
        change: impl FnOnce(&mut Transaction<'_>) -> Result<(), Absent>,
    ) -> Result<(), Absent> {
        let api = self.api;
        // SAFETY: 1, 3: no jump buffer, no locks.
        if unsafe { (api.tx_begin)(self.pool, std::ptr::null_mut(), PARAM_NONE) } != 0 {
            // SAFETY: 3: a begin that failed is ended, too.
            unsafe { (api.tx_end)() };
            return Err(refused(api, "beginning a transaction of libpmemobj"));
        }
        let changed = change(&mut Transaction { pool: self });
        // SAFETY: 3: commit and abort while it is in progress; then the end.
        let failed = unsafe {
            let in_progress = (api.tx_stage)() == STAGE_WORK;
            match &changed {
                Ok(()) if in_progress => (api.tx_commit)(),
                _ if in_progress => (api.tx_abort)(rustix::io::Errno::CANCELED.raw_os_error()),
                _ => {}
            }
            (api.tx_end)()
        };
        changed?;
        if failed == 0 { Ok(()) } else { Err(refused(api, "committing to libpmemobj")) }
    }
}

/// A transaction in progress.
pub(super) struct Transaction<'a> {
    pub(super) pool: &'a mut Pool,
}

impl Transaction<'_> {
    /// Logs the `len` bytes at `offset` of the object before they change.
    #[inline]
    pub(super) fn add_range(&mut self, object: Oid, offset: u64, len: usize) -> Result<(), Absent> {
        // SAFETY: 3.
        let failed = unsafe { (self.pool.api.tx_add_range)(object, offset, len) };
        if failed == 0 { Ok(()) } else { Err(refused(self.pool.api, "logging to libpmemobj")) }
    }

    /// A new object of a class: what is written to it is flushed by the commit.
    #[inline]
    pub(super) fn alloc(&mut self, bytes: usize, class: Class) -> Result<Oid, Absent> {
        self.alloc_with(bytes, class.0)
    }

    /// A new object of the default classes, all zero.
    pub(super) fn alloc_zeroed(&mut self, bytes: usize) -> Result<Oid, Absent> {
        const ZERO: u64 = 1;
        self.alloc_with(bytes, ZERO)
    }

    #[inline]
    fn alloc_with(&mut self, bytes: usize, flags: u64) -> Result<Oid, Absent> {
        // SAFETY: 3.
        let oid = unsafe { (self.pool.api.tx_xalloc)(bytes, 0, flags) };
        if oid.offset == 0 { Err(refused(self.pool.api, "allocating from libpmemobj")) } else { Ok(oid) }
    }

    /// Stores `value` at `offset` of the pool: logged, or new.
    #[inline]
    pub(super) fn write<T: Pod>(&mut self, offset: u64, value: &T) {
        let bytes = bytemuck::bytes_of(value);
        let at = self.pool.inside(offset, bytes.len());
        // SAFETY: 1, 2: inside the pool, which is borrowed exclusively.
        unsafe {
            let to = self.pool.pool.cast::<u8>().add(at);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
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
