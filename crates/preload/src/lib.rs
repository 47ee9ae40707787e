//! `libwattkeep_preload.so`: loaded into a program by LD_PRELOAD, it opens the program's memory to
//! `wattkeep record` before `main`, and asks for a last look when the program exits.
//!
//! It starts no thread, keeps no descriptor, and does nothing at all without the recorder's variable in
//! the environment. What it says is in `wattkeep_record::inside`.
//!
//! # Safety
//!
//! 1. `.init_array` and `.fini_array` hold pointers to C functions. The loader calls the first kind when
//!    the libraries this one depends on are initialised, the second before they are torn down.
//! 2. Neither function unwinds: what they call returns errors and panics nowhere; a panic would abort.
#![allow(unsafe_code)]

extern "C" fn begin() {
    wattkeep_record::inside::begin();
}

extern "C" fn end() {
    wattkeep_record::inside::end();
}

// SAFETY: 1, 2.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

// SAFETY: 1, 2.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;
