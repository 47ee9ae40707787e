//! What client, keeper and command line say to each other, one JSON message a packet.
//!
//! A connection asks, the keeper answers each request once, in order. The first connection is the
//! client's; its end is the client's end. Others, through the socket in the store's directory, may
//! look and steer, not attach. Descriptors travel beside the message that names them.

use serde::{Deserialize, Serialize};

use crate::types::{FaultMode, PolicyName, Tracking};

/// Version of these messages and of the control block's use.
pub const PROTOCOL: u32 = 2;

/// Name of the keeper's socket in the store's directory.
pub const SOCKET_NAME: &str = "keeper.sock";

/// What a client wants of its keeper for a whole session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionOptions {
    /// Make the store if there is none.
    pub create_if_missing: bool,
    /// Dirty budget as a person writes it: pages, bytes, or a percentage of the regions. `None`
    /// takes what the store remembers.
    pub budget: Option<String>,
    /// Which page is cleaned next.
    pub policy: PolicyName,
    /// Milliseconds between automatic checkpoints; 0 for none.
    pub checkpoint_interval_ms: u64,
    /// Milliseconds that the quiesce callback may take before a freeze goes on without it.
    pub quiesce_ms: u64,
    /// How first stores reach us, and why.
    pub fault_mode: FaultMode,
    /// The reason for people.
    pub fault_mode_reason: String,
    /// Fill the whole region from the store before it is handed out.
    pub fill_ahead: bool,
}

/// A region to open, and to make when `create_bytes` says how large.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionRequest {
    /// Name in the store.
    pub name: String,
    /// Size in bytes for a region that does not exist yet; `None` opens only.
    pub create_bytes: Option<u64>,
    /// How its stores are noticed.
    pub tracking: Tracking,
    /// Bytes of address space to keep for growth; 0 for the default.
    pub reserve_bytes: u64,
}

/// A question to the keeper.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Request {
    /// The client's first message. Carries the socket for [`Notice`]s.
    Hello {
        /// [`PROTOCOL`].
        protocol: u32,
        /// Directory of the store.
        store: String,
        /// Options of the session.
        options: SessionOptions,
    },
    /// Opens a region.
    OpenRegion(RegionRequest),
    /// The client mapped the region. Carries its userfaultfd, unless it has none.
    Attach {
        /// The region's place in the session.
        index: u32,
    },
    /// The client unmapped the region, or could not map it.
    Detach {
        /// The region's place in the session.
        index: u32,
    },
    /// Makes a region larger.
    Grow {
        /// The region's place in the session.
        index: u32,
        /// New size in bytes.
        bytes: u64,
    },
    /// Commits a consistent image.
    Checkpoint,
    /// Changes the dirty budget.
    SetBudget {
        /// As in [`SessionOptions::budget`].
        budget: String,
    },
    /// Asks for a [`Status`].
    Status,
    /// The power is going: freeze, save, commit.
    Save,
    /// The power is back: let writers go on after a save.
    Resume,
    /// The client has no mapping any more: write everything, commit, end.
    Close,
}

/// A region as the client needs it to map it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionReply {
    /// Place in the session.
    pub index: u32,
    /// Present size in pages.
    pub pages: u32,
    /// Size of the reserve in pages.
    pub reserve_pages: u32,
    /// Address that the region is mapped at.
    pub address: u64,
    /// How its stores are noticed.
    pub tracking: Tracking,
}

/// What a save did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SaveReport {
    /// Pages that were dirty or in flight when the save began.
    pub pages: u32,
    /// Milliseconds from the order to the durable commit.
    pub total_ms: f64,
    /// Of these: until the client had quiesced.
    pub quiesce_ms: f64,
    /// Until the last page was copied and its write submitted.
    pub copy_ms: f64,
    /// Flush and commit record.
    pub commit_ms: f64,
    /// Pages that a stopped thread had open, saved as they stood.
    pub unsettled_pages: u32,
    /// Epoch of the commit.
    pub epoch: u64,
}

/// The answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// To `Hello`. Carries the control block and the keeper's bell.
    Welcome {
        /// What recovery found, for people; `None` for a new store.
        recovered: Option<String>,
        /// The budget in pages.
        budget_pages: u32,
    },
    /// To `OpenRegion`. Carries the region's memory and page words.
    Region(RegionReply),
    /// To `Save`, `Checkpoint`.
    Saved(SaveReport),
    /// To `Status`.
    Status(Box<Status>),
    /// To everything else that worked.
    Done,
    /// It did not work.
    Failed {
        /// Cause and next command.
        message: String,
    },
}

/// News from the keeper that nobody asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "notice", rename_all = "snake_case")]
pub enum Notice {
    /// A freeze is coming: bring the program to a point it likes, then answer `Quiesced`.
    Quiesce {
        /// Number of the question.
        question: u64,
    },
    /// The client's answer.
    Quiesced {
        /// Number of the question.
        question: u64,
    },
    /// Grants are frozen: protect every dirty page (mprotect: only the client can).
    Protect {
        /// Number of the question.
        question: u64,
    },
    /// The client's answer.
    Protected {
        /// Number of the question.
        question: u64,
    },
    /// Victims are offered and no thread faults: protect them (mprotect: only the client can). The
    /// protected pages are the answer.
    Victims,
}

/// State of a running keeper, for people and machines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// `armed`, `not_armed`, `saving`, `saved`, or `failed`.
    pub state: String,
    /// Why it is not armed; empty when it is.
    pub reason: String,
    /// Process that maps the regions.
    pub client_pid: u32,
    /// Process of the keeper.
    pub keeper_pid: u32,
    /// Dirty budget in pages.
    pub budget_pages: u32,
    /// Permits that exist now: fewer than the budget while the log has no room to save that many pages.
    pub permits: u32,
    /// Dirty or in flight now.
    pub dirty_pages: u32,
    /// Highest `dirty_pages` since the store was opened.
    pub max_dirty_pages: u32,
    /// Dirty pages above which the keeper cleans ahead.
    pub threshold_pages: u32,
    /// Newly dirtied pages expected in the next epoch.
    pub pressure_pages: f64,
    /// How first stores reach us.
    pub fault_mode: String,
    /// Why.
    pub fault_mode_reason: String,
    /// Whether dirty pages can be swapped out; the reason when they can.
    pub memory_locked: String,
    /// Victim policy.
    pub policy: String,
    /// Faults resolved.
    pub faults: u64,
    /// Pages that became dirty.
    pub dirtied_pages: u64,
    /// Pages cleaned: written to the SSD, or found unchanged.
    pub cleaned_pages: u64,
    /// Of these: found equal to the store, not written.
    pub unchanged_pages: u64,
    /// Pages written again while they were on their way to the SSD.
    pub rescued_pages: u64,
    /// Victims protected by faulting threads, and by the keeper.
    pub protected_by_client: u64,
    /// See above.
    pub protected_by_keeper: u64,
    /// Times a thread slept for a permit, and for how long.
    pub permit_waits: u64,
    /// See above.
    pub permit_wait_ms: f64,
    /// Bytes written to the SSD since the store was opened.
    pub ssd_bytes: u64,
    /// Of these: moved by cleaning.
    pub ssd_cleaning_bytes: u64,
    /// Segments of the log, and how many are free.
    pub segments: u32,
    /// See above.
    pub segments_free: u32,
    /// Pages still to be filled from the store.
    pub restore_pages_left: u64,
    /// Epoch of the newest commit.
    pub last_commit_epoch: u64,
    /// Automatic checkpoints taken.
    pub checkpoints: u64,
    /// Checkpoints that gave up, because a thread held pages announced or half granted.
    pub checkpoints_given_up: u64,
    /// Quiesce callbacks that did not end in time.
    pub quiesces_missed: u64,
    /// Stores that nobody announced (checking mode).
    pub unannounced_stores: u64,
    /// Bytes of tracking memory in use: words, index, policy, queues, staging.
    pub tracking_bytes: u64,
    /// Regions.
    pub regions: Vec<RegionStatus>,
}

/// State of one open region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionStatus {
    /// Name in the store.
    pub name: String,
    /// Bytes.
    pub bytes: u64,
    /// Mapped at.
    pub address: u64,
    /// How its stores are noticed.
    pub tracking: Tracking,
}
