//! Every bound of the client and the keeper, with the reason for its number.
//!
//! Relations between bounds are asserted at compile time, at the end of the file.

use std::time::Duration;

/// Bytes of a page, the unit of tracking.
pub use wattkeep_store::types::PAGE_SIZE;

/// A model checker explores this build: what bounds queues is small, so that they fill up.
const MODEL: bool = cfg!(any(loom, shuttle));

/// Regions that one session maps at once. The fault handler searches them in order, so the bound
/// keeps the search short.
pub const REGIONS_MAX: usize = 16;

/// Sessions (open stores) that one process holds at once.
pub const SESSIONS_MAX: usize = 16;

/// Most pages that one fault makes writable. 128 pages (512 KiB) bring the fault's 4.5 µs below
/// 0.04 µs a page; more would only overshoot further at the end of a run.
pub const GRANT_RUN_MAX: u32 = 128;

/// A grant run takes at most this part of the free permits, so that guessing never starves others.
pub const GRANT_RUN_SHARE: u32 = 4;

/// Pages that the keeper offers for protection at once. Victims that lie in the ring go stale, so
/// the ring holds about a millisecond of faults (5 µs each).
pub const VICTIMS_RING: usize = if MODEL { 4 } else { 256 };

/// News from client to keeper that may wait. The keeper drains it every few hundred microseconds;
/// at 0.2 faults per µs that is under 1,000 entries. When it is full the news is dropped and the
/// keeper reads the page words instead, so the size is for speed only.
pub const EVENTS_RING: usize = if MODEL { 4 } else { 8192 };

/// How long a sleeping client waits before it looks again whether its keeper lives.
pub const CLIENT_WAIT: Duration = Duration::from_millis(100);

/// How long a freeze waits for a store that was announced, or a grant that was begun, before it
/// copies the page as it stands. A grant is one system call (1 µs); 5 ms means its thread is stopped.
pub const FREEZE_PATIENCE: Duration = Duration::from_millis(5);

/// How long a client may take to protect its own pages when only it can (mprotect). It has a thread
/// for it, and a page costs 1 µs.
pub const CLIENT_PROTECTS: Duration = Duration::from_millis(500);

/// How long the opening of a region that was closed a moment ago waits until its pages are on the SSD: a
/// budget of 1 GiB at 100 MB/s. The keeper keeps on serving faults meanwhile.
pub const DRAIN_PATIENCE: Duration = Duration::from_secs(10);

/// How often a client is asked to protect offered victims (mprotect). One notice takes some 30 µs.
pub const CLIENT_PAUSE: Duration = Duration::from_micros(200);

/// How long the keeper waits, after a checkpoint that gave up, before it asks for room again: the thread
/// that was in the way holds an announcement, and every try freezes the others for a while.
pub const CHECKPOINT_PAUSE: Duration = Duration::from_millis(50);

/// How long it waits at least before it tries again for whoever asked.
pub const CHECKPOINT_PAUSE_MIN: Duration = Duration::from_millis(10);

/// How long, from the first try that gave up, a checkpoint that somebody asked for is tried again. A thread that
/// was sent from its core amid a grant comes back after tens of milliseconds, even on a busy machine; one that does
/// not is stopped, or waits.
pub const CHECKPOINT_PATIENCE: Duration = Duration::from_millis(500);

/// Longest sleep of the keeper: the time by which pressure, timers and idle clients are looked at.
pub const KEEPER_NAP: Duration = Duration::from_millis(5);

/// Length of an epoch in which newly dirtied pages are counted (Viyojit, section 6.1, takes 1 ms;
/// longer epochs gave it the same results).
pub const EPOCH: Duration = Duration::from_millis(10);

/// How many news entries the keeper takes in before it looks at its other duties.
pub const EVENTS_PER_TURN: usize = if MODEL { 2 } else { 1024 };

/// Batches that may be on their way to the SSD at once.
pub const BATCHES_IN_FLIGHT: usize = 4;

/// Victims wait for company until they are this part of the budget, or a full batch: small batches
/// spend the log on summaries and the restore on small reads, large ones hold permits longer.
pub const BATCH_BUDGET_SHARE: usize = 64;

/// A victim waits for company at most so long, several times the SSD's write latency.
pub const BATCH_PATIENCE: Duration = Duration::from_millis(2);

/// Segments of pages that the copier of a save has before it: one to copy, one so that it need not wait.
pub const LOADS_COPIED_AHEAD: usize = 2;

/// A save of so many pages is copied without a second thread: one segment of 4 MiB takes a millisecond,
/// a thread 50 µs to start, and nothing would go on beside it.
pub const SAVE_ALONE_PAGES: usize = 1020;

/// Reads that the filler of a restore has before it: one to fill, one so that it need not wait.
pub const READS_FILLED_AHEAD: usize = 2;

/// A restore of so many pages is filled without a second thread: 16 MiB take 8 ms, a thread 50 µs to start.
pub const RESTORE_ALONE_PAGES: u32 = 4096;

/// A read of fewer pages is not handed to the filler: somebody may wait for them, and 16 take 40 µs.
pub const READ_ALONE_PAGES: usize = 16;

/// Sleep of a keeper that has nothing to do but to wait for its filler: one read takes half a millisecond.
pub const FILLER_NAP: Duration = Duration::from_micros(300);

/// Sleep of a keeper that waits until a thread has ended an announced store, which does not ring: one takes
/// nanoseconds, but for a thread that is stopped, or holds on to it.
pub const STORE_NAP: Duration = Duration::from_micros(200);

/// Part of the budget, at most, that is kept free for two batches under way.
pub const PIPELINE_SHARE: usize = 16;

/// Largest batch in normal running, in pages: 1 MiB. Larger ones would hold permits longer.
pub const BATCH_PAGES_MAX: usize = 252;

/// Longest message of the control socket in bytes.
pub const MESSAGE_MAX: usize = 64 * 1024;

/// Address space that a region reserves when its creator names no larger reserve: room to grow.
pub const RESERVE_MIN_BYTES: u64 = if MODEL { 64 << 10 } else { 64 << 30 };

/// First address that regions are given. Below lie programs, above the kernel's own choices.
pub const ADDRESS_BASE: u64 = 0x2000_0000_0000;

/// End of the addresses that regions are given.
pub const ADDRESS_END: u64 = 0x5000_0000_0000;

/// Reads in flight in the background restore: enough for an SSD when the pages lie in small pieces, few
/// enough that a page somebody waits for soon has its turn, and fewer than the store has buffers, so that
/// it finds one.
pub const RESTORE_READS: usize = 8;
/// Pages of one background read.
pub const RESTORE_READ_PAGES: u32 = 256;

const _: () = assert!(VICTIMS_RING.is_power_of_two() && EVENTS_RING.is_power_of_two());
const _: () = assert!(EVENTS_PER_TURN < EVENTS_RING);
const _: () = assert!(GRANT_RUN_MAX >= 1 && GRANT_RUN_SHARE >= 1);
const _: () = assert!(ADDRESS_BASE < ADDRESS_END);
const _: () = assert!(RESTORE_READS + READS_FILLED_AHEAD + 1 < wattkeep_store::limits::READ_BUFFERS);
