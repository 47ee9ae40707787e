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

const _: () = assert!(size_of::<Oid>() == 16);

/// A pool, opaque.
pub(super) type PoolPtr = *mut c_void;

type Constructor = Option<unsafe extern "C" fn(PoolPtr, *mut c_void, *mut c_void) -> c_int>;

/// What we call, by the names of the library without their prefix.
pub(super) struct Api {
    pub(super) create: unsafe extern "C" fn(*const c_char, *const c_char, usize, c_uint) -> PoolPtr,
    pub(super) close: unsafe extern "C" fn(PoolPtr),
    pub(super) errormsg: unsafe extern "C" fn() -> *const c_char,
    pub(super) ctl_set: unsafe extern "C" fn(PoolPtr, *const c_char, *mut c_void) -> c_int,
    pub(super) alloc: unsafe extern "C" fn(PoolPtr, *mut Oid, usize, u64, Constructor, *mut c_void) -> c_int,
    pub(super) free: unsafe extern "C" fn(*mut Oid),
}

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
            alloc: symbol(library, "pmemobj_alloc")?,
            free: symbol(library, "pmemobj_free")?,
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
