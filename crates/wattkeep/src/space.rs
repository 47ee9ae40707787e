//! Regions as what persistent heaps stand on.
//!
//! # Safety
//!
//! 1. A region's mapping keeps its address until the region is dropped, and its length only grows.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;

use wattkeep_keep::types::Tracking;
use wattkeep_persist::{Backing, Domain, Refused, Space};

use crate::{Error, Region};

impl Region {
    /// The region as a space of persistent bytes. Explicit regions are the faster ones here: all stores
    /// through a space are announced.
    pub fn into_space(self, domain: Domain) -> Space {
        Space::new(Arc::new(self), domain)
    }
}

fn refused(error: Error) -> Refused {
    Refused::Region(error.to_string())
}

// SAFETY: 1.
unsafe impl Backing for Region {
    fn start(&self) -> NonNull<u8> {
        NonNull::new(self.as_ptr()).expect("an open region is mapped")
    }

    fn len(&self) -> usize {
        Region::len(self)
    }

    fn announces(&self) -> bool {
        self.tracking() != Tracking::Transparent
    }

    fn begin_write(&self, at: usize, len: usize) -> Result<(), Refused> {
        self.0.begin_write(at, len).map_err(refused)
    }

    fn end_write(&self, at: usize, len: usize) {
        self.0.end_write(at, len);
    }

    fn piece(&self, at_least: usize) -> Option<usize> {
        self.0.piece(at_least)
    }

    fn populate(&self, at: usize, len: usize) -> Result<bool, Refused> {
        Ok(self.0.populate(at, len))
    }

    fn grow(&self, bytes: usize) -> Result<(), Refused> {
        if bytes <= Region::len(self) {
            return Ok(());
        }
        Region::grow(self, bytes.next_multiple_of(crate::PAGE_SIZE) as u64).map_err(refused)
    }
}
