//! The calls of libpmemobj, from the shared library that the machine has.
//!
//! # Safety
//!
//! 1. The types are those of `libpmemobj/*.h`, version 1; the library keeps them for its soname.
//! 2. The library is never unloaded: its threads and thread-local destructors outlive any pool.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use libloading::Library;

use crate::rival::Absent;

const SONAME: &str = "libpmemobj.so.1";

/// `PMEMoid`: which pool, and where in it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Oid {
    pub(super) pool_uuid: u64,
    pub(super) offset: u64,
}

impl Oid {
    pub(super) const NULL: Self = Self { pool_uuid: 0, offset: 0 };
}

/// `struct pobj_alloc_class_desc`.
#[repr(C)]
pub(super) struct ClassDescription {
    pub(super) unit_bytes: usize,
    pub(super) alignment: usize,
    pub(super) units_per_block: c_uint,
    pub(super) header: c_int,
    pub(super) class: c_uint,
}

const _: () = assert!(size_of::<Oid>() == 16 && size_of::<ClassDescription>() == 32);

/// `POBJ_HEADER_NONE`.
pub(super) const HEADER_NONE: c_int = 2;

/// `TX_PARAM_NONE`.
pub(super) const PARAM_NONE: c_int = 0;

/// A pool, opaque.
pub(super) type PoolPtr = *mut c_void;

type Constructor = Option<unsafe extern "C" fn(PoolPtr, *mut c_void, *mut c_void) -> c_int>;

/// What we call, by the names of the library without their prefix.
pub(super) struct Api {
    pub(super) create: unsafe extern "C" fn(*const c_char, *const c_char, usize, c_uint) -> PoolPtr,
    pub(super) close: unsafe extern "C" fn(PoolPtr),
    pub(super) errormsg: unsafe extern "C" fn() -> *const c_char,
    pub(super) ctl_set: unsafe extern "C" fn(PoolPtr, *const c_char, *mut c_void) -> c_int,
    pub(super) root: unsafe extern "C" fn(PoolPtr, usize) -> Oid,
    pub(super) alloc: unsafe extern "C" fn(PoolPtr, *mut Oid, usize, u64, Constructor, *mut c_void) -> c_int,
    pub(super) free: unsafe extern "C" fn(*mut Oid),
    pub(super) tx_begin: unsafe extern "C" fn(PoolPtr, *mut c_void, ...) -> c_int,
    pub(super) tx_add_range: unsafe extern "C" fn(Oid, u64, usize) -> c_int,
    pub(super) tx_xalloc: unsafe extern "C" fn(usize, u64, u64) -> Oid,
    pub(super) tx_abort: unsafe extern "C" fn(c_int),
    pub(super) tx_commit: unsafe extern "C" fn(),
    pub(super) tx_end: unsafe extern "C" fn() -> c_int,
    pub(super) tx_stage: unsafe extern "C" fn() -> c_int,
}

/// `TX_STAGE_WORK`: a transaction is in progress.
pub(super) const STAGE_WORK: c_int = 1;

impl Api {
    /// The library, loaded once.
    ///
    /// # Errors
    /// It is not installed, or lacks a call.
    pub(super) fn get() -> Result<&'static Self, Absent> {
        static API: OnceLock<Result<Api, Absent>> = OnceLock::new();
        API.get_or_init(Self::load).as_ref().map_err(Clone::clone)
    }

    fn load() -> Result<Self, Absent> {
        // SAFETY: 2: leaked; its initialisers only read the environment and the processor's features.
        let library = unsafe { Library::new(SONAME) }
            .map_err(|_| format!("{SONAME} is not installed: apt-get install libpmemobj1"))?;
        let library: &'static Library = Box::leak(Box::new(library));
        force_pmem();
        Ok(Self {
            create: symbol(library, "pmemobj_create")?,
            close: symbol(library, "pmemobj_close")?,
            errormsg: symbol(library, "pmemobj_errormsg")?,
            ctl_set: symbol(library, "pmemobj_ctl_set")?,
            root: symbol(library, "pmemobj_root")?,
            alloc: symbol(library, "pmemobj_alloc")?,
            free: symbol(library, "pmemobj_free")?,
            tx_begin: symbol(library, "pmemobj_tx_begin")?,
            tx_add_range: symbol(library, "pmemobj_tx_add_range")?,
            tx_xalloc: symbol(library, "pmemobj_tx_xalloc")?,
            tx_abort: symbol(library, "pmemobj_tx_abort")?,
            tx_commit: symbol(library, "pmemobj_tx_commit")?,
            tx_end: symbol(library, "pmemobj_tx_end")?,
            tx_stage: symbol(library, "pmemobj_tx_stage")?,
        })
    }
}

/// Calls of [`Api`]: the field says which type the symbol has.
fn symbol<F: Copy>(library: &'static Library, name: &str) -> Result<F, Absent> {
    // SAFETY: 1: the fields of `Api` have the types of the headers.
    let symbol = unsafe { library.get::<F>(name) };
    symbol.map(|symbol| *symbol).map_err(|error| format!("{SONAME} is of another version: {error}"))
}

/// Makes the library take tmpfs for persistent memory: lines are flushed, and `msync` is not called. It
/// looks at the variable when the first pool is made.
fn force_pmem() {
    // SAFETY: 2: nothing in this program reads the environment through libc but that library, later and on
    // this thread; readers of the standard library take its lock.
    unsafe { std::env::set_var("PMEM_IS_PMEM_FORCE", "1") };
}
