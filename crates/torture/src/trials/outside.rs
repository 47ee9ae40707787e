//! A program's region as seen from outside, while the program and its keeper stand still.
//!
//! Counts pages that may differ from the SSD without asking the ledger or the page words: those that
//! the processor's page table lets the program write, and those whose bytes differ from the newest
//! version in the log. A page that is neither is safe, whatever anybody's books say.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::process::Signal;
use wattkeep::FaultMode;
use wattkeep_store::types::PAGE_SIZE;
use wattkeep_sys::pagemap;

use super::lab::{send, wait_for_stop, wait_until_stopped};
use super::log_reader::LogReader;

/// The first region of a store has this id.
const FIRST_REGION: u32 = 1;

/// A look at one region of a running program.
pub(crate) struct Outside {
    program: i32,
    keeper: i32,
    pages: usize,
    start: usize,
    mode: FaultMode,
    protects: bool,
    memory: File,
    pagemap: File,
    log: LogReader,
}

/// What one look found: a mark per page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sight {
    /// The program can store there without a fault.
    pub(crate) writable: Vec<bool>,
    /// The log holds other bytes.
    pub(crate) differs: Vec<bool>,
}

impl Sight {
    /// Pages that a power cut at this instant would have to save.
    pub(crate) fn unsaved(&self) -> usize {
        self.writable.iter().zip(&self.differs).filter(|(writable, differs)| **writable || **differs).count()
    }
}

impl Outside {
    /// Finds the first region of the store in `directory` in both processes. The program is our child.
    pub(crate) fn open(
        directory: &Path,
        program: i32,
        keeper: i32,
        pages: u64,
        mode: FaultMode,
        explicit: bool,
    ) -> Result<Self, String> {
        let failed = |e: std::io::Error| format!("cannot look into process {program}: {e}");
        let maps = std::fs::read_to_string(format!("/proc/{program}/maps")).map_err(failed)?;
        let line = maps.lines().find(|line| line.contains("memfd:wattkeep-region"));
        let start = line.and_then(|line| usize::from_str_radix(line.split('-').next()?, 16).ok());
        Ok(Self {
            program,
            keeper,
            pages: pages as usize,
            start: start.ok_or("the program maps no region")?,
            mode,
            protects: !explicit,
            memory: region_memory(keeper)?,
            pagemap: File::open(format!("/proc/{program}/pagemap")).map_err(failed)?,
            log: LogReader::open(directory).map_err(failed)?,
        })
    }

    /// Stops both processes, looks, and lets them run again. A keeper that is dead stands still anyway.
    pub(crate) fn look(&self, keeper_lives: bool) -> Result<Sight, String> {
        send(self.program, Signal::STOP);
        if keeper_lives {
            send(self.keeper, Signal::STOP);
        }
        let stopped = wait_for_stop(self.program)
            .and_then(|()| if keeper_lives { wait_until_stopped(self.keeper) } else { Ok(()) });
        let sight = stopped.and_then(|()| self.look_now());
        send(self.keeper, Signal::CONT);
        send(self.program, Signal::CONT);
        sight
    }

    fn look_now(&self) -> Result<Sight, String> {
        let writable = if self.protects { self.writable()? } else { vec![false; self.pages] };
        Ok(Sight { writable, differs: self.differs().map_err(|e| format!("cannot compare: {e}"))? })
    }

    fn writable(&self) -> Result<Vec<bool>, String> {
        let end = self.start + self.pages * PAGE_SIZE;
        let ranges = match self.mode {
            FaultMode::Mprotect => self.writable_mappings()?,
            _ => pagemap::unprotected(self.pagemap.as_fd(), self.start, end, self.pages)
                .map_err(|e| format!("cannot scan the page table: {e}"))?,
        };
        let mut writable = vec![false; self.pages];
        for (from, to) in ranges {
            let pages = from.max(self.start)..to.min(end);
            for page in pages.step_by(PAGE_SIZE) {
                writable[(page - self.start) / PAGE_SIZE] = true;
            }
        }
        Ok(writable)
    }

    fn writable_mappings(&self) -> Result<Vec<(usize, usize)>, String> {
        let maps =
            std::fs::read_to_string(format!("/proc/{}/maps", self.program)).map_err(|e| e.to_string())?;
        let writable = maps.lines().filter(|line| line.contains(" rw") && line.contains("wattkeep-region"));
        let range = |line: &str| {
            let (from, to) = line.split(' ').next()?.split_once('-')?;
            Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
        };
        Ok(writable.filter_map(range).collect())
    }

    fn differs(&self) -> std::io::Result<Vec<bool>> {
        let stored = self.log.newest(FIRST_REGION, self.pages)?;
        let mut page = [0; PAGE_SIZE];
        let mut differs = Vec::with_capacity(self.pages);
        for (number, stored) in stored.into_iter().enumerate() {
            self.memory.read_exact_at(&mut page, (number * PAGE_SIZE) as u64)?;
            // Zeros: nothing was ever stored there, or the restore has not come that far.
            let untouched = page.iter().all(|byte| *byte == 0);
            differs.push(!untouched && stored != Some(self.log.checksum(&page)));
        }
        Ok(differs)
    }
}

/// The memory of the keeper's first region, read-only.
fn region_memory(keeper: i32) -> Result<File, String> {
    let failed = |e: std::io::Error| format!("cannot look into keeper {keeper}: {e}");
    let mut found: Vec<_> = std::fs::read_dir(format!("/proc/{keeper}/fd"))
        .map_err(failed)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            std::fs::read_link(path)
                .is_ok_and(|target| target.to_string_lossy().contains("memfd:wattkeep-region"))
        })
        .collect();
    found.sort_by_key(|path| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok()));
    let first = found.first().ok_or("the keeper holds no region")?;
    File::open(first).map_err(failed)
}
