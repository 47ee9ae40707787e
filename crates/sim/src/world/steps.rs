//! A script's steps, carried out on the machine.
//!
//! After each call of the engine the oracle is told what it promised, and the auditor looks.

use std::time::Duration;

use wattkeep_keep::clock::SimulatedClock;
use wattkeep_keep::limits::PAGE_SIZE;
use wattkeep_store::{Recovery, Store};

use super::machine::{Session, Settings, Trouble, World, region_name};
use super::recovered::Expected;
use super::threads::Access;
use crate::disk::{Cut, Fault, FaultKind, MemoryDisk};
use crate::medium::Moment;
use crate::oracle::Oracle;
use crate::random::Random;
use crate::script::{Op, Page, REGIONS, THREADS};

/// Time that one turn of the keeper takes.
const TURN: Duration = Duration::from_micros(20);

/// Turns within which a machine settles: more is a hang.
const SETTLES: usize = 600;

/// A moment of a history, and what a store may show that was cut then.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// What the disk held.
    pub moment: Moment,
    /// Shared by the moments of one step.
    pub expected: std::rc::Rc<Expected>,
}

impl World {
    /// Carries out one step.
    pub fn apply(&mut self, op: Op) -> Result<(), Trouble> {
        match op {
            Op::Store { thread, page, place, value } => {
                self.access(thread, Access::Store { page, place, value: value.into() })?
            }
            Op::Read { thread, page } => self.access(thread, Access::Read { page })?,
            Op::Announce { thread, page, pages } => self.access(thread, Access::Announce { page, pages })?,
            Op::Release { thread } => self.release(thread),
            Op::Turn { turns } => return (0..turns).try_for_each(|_| self.turn().map(drop)),
            Op::Pass { us } => self.clock.advance(Duration::from_micros(us.into())),
            Op::Settle => return self.settle(),
            Op::Checkpoint if self.saved => {}
            Op::Checkpoint => self.ask_for_checkpoint(),
            Op::Save => self.save()?,
            Op::Resume => self.resume()?,
            Op::Budget { pages } => self.set_budget(pages.into())?,
            Op::Grow { region, pages } => self.grow(region, pages.into())?,
            Op::Close => return self.end_session(true),
            Op::Kill => return self.end_session(false),
            Op::Cut { cut, seed, again } => return self.cut(cut, seed.into(), again),
        }
        self.audit()
    }

    /// One turn of the keeper; then whoever waited tries again.
    pub fn turn(&mut self) -> Result<bool, Trouble> {
        self.clock.advance(TURN);
        let had_cut = self.session.keeper.has_cut();
        let before = self.oracle.committed;
        let turned = self.session.keeper.turn();
        let epoch = self.session.keeper.store().last_commit().epoch.0;
        if !had_cut && self.session.keeper.has_cut() {
            self.session.cuts += 1;
            self.oracle.cut();
        }
        if epoch > before {
            self.committed(epoch, false)?;
        }
        self.record(before);
        let moved = turned.map_err(Trouble::stopped)?;
        self.hear_of_checkpoints()?;
        self.wake_threads()?;
        self.audit()?;
        Ok(moved)
    }

    fn ask_for_checkpoint(&mut self) {
        let session = &mut self.session;
        session.asked += 1;
        session.unheard.insert(session.asked, session.cuts);
        session.keeper.begin_checkpoint(Some(session.asked));
    }

    /// Whoever asked for a checkpoint hears of it once, and of success only behind a cut that was made later.
    fn hear_of_checkpoints(&mut self) -> Result<(), Trouble> {
        let session = &mut self.session;
        for (asker, report) in session.keeper.take_reports() {
            let wrong = match session.unheard.remove(&asker) {
                None => "was answered twice",
                Some(before) if report.is_ok() && session.cuts == before => "was answered with an older one",
                Some(_) => continue,
            };
            return Err(Trouble::Violation(format!("checkpoint {asker} {wrong}")));
        }
        Ok(())
    }

    fn committed(&mut self, epoch: u64, complete: bool) -> Result<(), Trouble> {
        if self.oracle.commit(epoch, complete) {
            return Ok(());
        }
        Err(Trouble::Violation(format!("commit {epoch} was made without a cut")))
    }

    /// What may be found by whoever opens the store of this instant.
    pub fn expected(&self, since: u64) -> Expected {
        let images = (since..=self.oracle.committed + 1)
            .filter_map(|epoch| Some((epoch, self.oracle.image(epoch)?.clone())));
        Expected {
            images: images.collect(),
            memory: self.oracle.memory.clone(),
            escaped: self.escaped,
            saved: self.saved && !self.escaped,
        }
    }

    /// Keeps the moments of the step that began when `before` was the last commit.
    fn record(&mut self, before: u64) {
        let moments = self.disk.take_moments();
        if !moments.is_empty() {
            let mut expected = self.expected(before);
            // A save is complete only at its end.
            expected.saved &= self.oracle.committed == before;
            let expected = std::rc::Rc::new(expected);
            let recorded = moments.into_iter().map(|moment| Recorded { moment, expected: expected.clone() });
            self.recorded.extend(recorded);
        }
        self.oracle.forget_older();
    }

    /// The moments recorded since the last call, if the disk records.
    pub fn take_recorded(&mut self) -> Vec<Recorded> {
        std::mem::take(&mut self.recorded)
    }

    /// Turns and lets time pass until nothing moves.
    fn settle(&mut self) -> Result<(), Trouble> {
        let mut quiet = 0;
        for _ in 0..SETTLES {
            let moved = self.turn()?;
            // News from before a save waits in the queue until writers go on.
            let idle = self.saved || self.session.keeper.is_idle();
            quiet = if moved || !idle { 0 } else { quiet + 1 };
            if quiet == 4 {
                return Ok(());
            }
            if !moved {
                self.clock.advance(Duration::from_micros(700));
            }
        }
        // Who waits for pages that others keep announced tries again and again, and may go on so.
        if (0..THREADS).any(|thread| self.is_blocked(thread)) {
            return Ok(());
        }
        Err(Trouble::Hang(format!("the keeper is not idle after {SETTLES} turns: {}", self.show())))
    }

    /// Saves as if the power went.
    pub fn save(&mut self) -> Result<(), Trouble> {
        let before = self.oracle.committed;
        self.oracle.cut();
        let saved = self.session.keeper.save();
        if let Ok(report) = &saved {
            self.saved = true;
            self.committed(report.epoch, true)?;
        }
        self.record(before);
        self.escaped &= saved.is_err();
        saved.map_err(Trouble::stopped)?;
        self.hear_of_checkpoints()
    }

    fn resume(&mut self) -> Result<(), Trouble> {
        if !self.saved {
            return Ok(());
        }
        self.saved = false;
        let resumed = self.session.keeper.resume();
        // Until the store says that it runs again, it may be found calling the save complete.
        self.record(self.oracle.committed);
        self.escaped = false;
        resumed.map_err(Trouble::stopped)?;
        self.wake_threads()
    }

    /// Changes the dirty budget.
    pub fn set_budget(&mut self, pages: u32) -> Result<(), Trouble> {
        let most: usize = self.oracle.memory.iter().map(Vec::len).sum();
        let pages = pages.clamp(1, most as u32);
        let set = self.session.keeper.set_budget_text(&pages.to_string());
        self.record(self.oracle.committed);
        set.map_err(Trouble::Stopped)?;
        self.wake_threads()
    }

    fn grow(&mut self, region: u8, pages: u32) -> Result<(), Trouble> {
        let index = usize::from(region);
        if pages <= self.oracle.memory[index].len() as u32 || pages > self.settings.reserve {
            return Ok(());
        }
        let grown = self.session.keeper.grow(index, u64::from(pages) * PAGE_SIZE as u64);
        self.record(self.oracle.committed);
        grown.map_err(Trouble::Stopped)?;
        self.session.regions[index].tracked.set_pages(pages);
        self.oracle.memory[index].resize(pages as usize, [0; 4]);
        self.auditor.resize(region, pages);
        Ok(())
    }

    /// The program ends, of itself or not; the keeper writes everything out; the store is opened again.
    fn end_session(&mut self, orderly: bool) -> Result<(), Trouble> {
        self.audit_memory()?;
        for index in 0..self.session.regions.len() {
            if orderly {
                (0..THREADS).for_each(|thread| self.release(thread));
                self.session.shared.withdraw(index as u32);
                self.session.keeper.detach(index).map_err(Trouble::Stopped)?;
            }
        }
        let before = self.oracle.committed;
        self.oracle.cut();
        let closed = self.session.keeper.close();
        if let Ok(report) = &closed {
            self.saved = true;
            self.committed(report.epoch, true)?;
        }
        self.record(before);
        self.escaped &= closed.is_err();
        closed.map_err(Trouble::stopped)?;
        self.hear_of_checkpoints()?;
        if let Some((asker, _)) = self.session.unheard.first_key_value() {
            return Err(Trouble::Violation(format!("checkpoint {asker} was never answered")));
        }
        self.reopen(self.disk.after_cut(Cut::DropAll, 0))
    }

    /// The power goes without a word, perhaps again during the recovery; the store is opened again.
    fn cut(&mut self, cut: Cut, seed: u64, again: Option<u16>) -> Result<(), Trouble> {
        self.audit_memory()?;
        let mut random = Random::new(seed);
        let mut disk = self.disk.after_cut(cut, random.number());
        if let Some(at) = again {
            disk.set_fault(Some(Fault { at: at.into(), kind: FaultKind::Io, for_ever: true }));
            drop(boot(&self.settings, &self.clock, &disk));
            disk = disk.after_cut(Cut::Mixed, random.number());
            self.forget_save();
        }
        self.reopen(disk)
    }

    /// A recovery may have handed regions out again: the save is not everything any more.
    pub fn forget_save(&mut self) {
        self.saved = false;
    }

    /// Opens what a disk holds, compares it, and goes on from there.
    pub fn reopen(&mut self, disk: MemoryDisk) -> Result<(), Trouble> {
        let expected = self.expected(self.oracle.committed);
        let recording = self.disk.is_recording();
        disk.set_pace(self.disk.pace());
        let samples = self.samples();
        let recorded = std::mem::take(&mut self.recorded);
        *self = Self::open(&self.settings, &self.clock, disk, &expected)?;
        self.disk.set_recording(recording);
        self.recorded = recorded;
        self.auditor.samples = samples;
        self.audit()
    }

    /// The machine over what a disk holds, if it is what is expected.
    pub fn open(
        settings: &Settings,
        clock: &SimulatedClock,
        disk: MemoryDisk,
        expected: &Expected,
    ) -> Result<Self, Trouble> {
        let (store, recovery) = open_store(disk.clone(), expected)?;
        let epoch = recovery.commit.epoch.0;
        let mut image = expected.image(epoch).cloned().unwrap_or_default();
        for (number, region) in image.iter_mut().enumerate() {
            let pages = store.region_by_name(&region_name(number)).map_or(0, |record| record.pages);
            region.resize(pages as usize, [0; 4]);
        }
        let oracle = Oracle::new(image, epoch);
        let mut world = Self::over(settings.clone(), clock.clone(), disk, store, oracle)?;
        world.restarted = Some(recovery.clean);
        Ok(world)
    }

    /// Loads every page, as fast as the restore gives it.
    pub fn read_everything(&mut self) -> Result<(), Trouble> {
        for region in 0..REGIONS {
            for page in 0..self.oracle.memory[usize::from(region)].len() as u8 {
                self.access(0, Access::Read { page: Page { region, page } })?;
                let mut turns = 0;
                while self.is_blocked(0) {
                    self.turn()?;
                    turns += 1;
                    if turns > SETTLES {
                        return Err(Trouble::Hang(format!("r{region}p{page} is not restored")));
                    }
                }
            }
        }
        Ok(())
    }

    /// Ends a history: everybody gets what they wait for, and a last save holds all that was stored.
    pub fn finish(&mut self) -> Result<(), Trouble> {
        self.resume()?;
        for _ in 0..SETTLES {
            (0..THREADS).for_each(|thread| self.release(thread));
            if (0..THREADS).all(|thread| !self.is_blocked(thread)) {
                self.settle()?;
                return self.end_session(true);
            }
            if !self.turn()? {
                self.clock.advance(Duration::from_millis(1));
            }
        }
        Err(Trouble::Hang(format!("a thread still waits after {SETTLES} turns: {}", self.show())))
    }
}

/// Opens the store of a disk and compares it with what it may show.
pub fn open_store(disk: MemoryDisk, expected: &Expected) -> Result<(Store<MemoryDisk>, Recovery), Trouble> {
    let (mut store, recovery) =
        Store::open(disk).map_err(|e| Trouble::Lost(format!("the store does not open: {e}")))?;
    expected.check(&mut store, &recovery)?;
    Ok((store, recovery))
}

/// Opens the store of a disk and starts the keeper and the program over it.
pub fn boot(settings: &Settings, clock: &SimulatedClock, disk: &MemoryDisk) -> Result<Session, Trouble> {
    let (store, _) = Store::open(disk.clone()).map_err(Trouble::stopped)?;
    Session::start(settings, clock, store)
}
