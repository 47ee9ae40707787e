//! What the keeper asks of its client during a cut: to quiesce, and, with mprotect, to protect.
//!
//! Every wait is bounded. A client that does not answer is cut as it stands; with mprotect, where only
//! the client can protect its pages, it is stopped first.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use wattkeep_store::disk::Disk;
use wattkeep_sys::socket;

use super::engine::Keeper;
use crate::limits::{CLIENT_PAUSE, CLIENT_PROTECTS, MESSAGE_MAX};
use crate::protocol::Notice;
use crate::types::FaultMode;

/// The way to the client.
#[derive(Default)]
pub struct ClientLine {
    /// Carries [`Notice`]s; `None` once the client is gone.
    pub notices: Option<OwnedFd>,
    /// The client's process.
    pub pid: u32,
    /// It was stopped for a save and must not run on: its pages are open.
    pub stopped: bool,
    /// Questions asked so far.
    pub questions: u64,
    /// When it was last asked to protect victims.
    pub asked: Option<Instant>,
}

impl ClientLine {
    /// Sends a question and waits for its own answer, at most `patience`. Questions are numbered: a late
    /// answer to the one before says nothing of the pages that were opened since.
    fn ask(&mut self, question: fn(u64) -> Notice, answer: fn(u64) -> Notice, patience: Duration) -> bool {
        self.questions += 1;
        let answer = answer(self.questions);
        let Some(notices) = &self.notices else { return false };
        let Ok(bytes) = serde_json::to_vec(&question(self.questions)) else { return false };
        if socket::send(notices, &bytes, &[]).is_err() {
            return false;
        }
        let deadline = Instant::now() + patience;
        let mut bytes = vec![0; MESSAGE_MAX];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            let mut fds = [PollFd::new(notices, PollFlags::IN)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) => return false,
                Err(_) => continue,
                Ok(_) => {}
            }
            let Ok(Some((len, _))) = socket::receive(notices, &mut bytes) else { return false };
            // An answer that came too late for an earlier question is passed over.
            if serde_json::from_slice::<Notice>(&bytes[..len]).is_ok_and(|got| got == answer) {
                return true;
            }
        }
    }
}

impl<D: Disk> Keeper<D> {
    /// Lets the program come to a point it likes, if it registered a callback.
    pub(super) fn quiesce(&mut self) {
        let patience = Duration::from_millis(self.options.quiesce_ms);
        if !patience.is_zero()
            && !self.client.ask(
                |question| Notice::Quiesce { question },
                |question| Notice::Quiesced { question },
                patience,
            )
        {
            self.counters.quiesces_missed += 1;
        }
    }

    /// With mprotect only the client can protect its pages: has it do so, now and then. The news of the
    /// protected pages is the answer.
    pub(super) fn ask_client_for_victims(&mut self) -> bool {
        let Some(notices) = &self.client.notices else { return false };
        if self.client.asked.is_some_and(|asked| self.now - asked < CLIENT_PAUSE) {
            return false;
        }
        self.client.asked = Some(self.now);
        let bytes = serde_json::to_vec(&Notice::Victims).expect("a notice is plain data");
        // A full socket holds notices enough.
        let _ = socket::send_at_once(notices, &bytes);
        false
    }

    /// With mprotect only the client can protect its pages. False when it did not.
    pub(super) fn ask_client_to_protect(&mut self) -> bool {
        self.options.fault_mode != FaultMode::Mprotect
            || self.client.notices.is_none()
            || self.client.ask(
                |question| Notice::Protect { question },
                |question| Notice::Protected { question },
                CLIENT_PROTECTS,
            )
    }

    /// Stops a client whose pages are open, for good.
    pub(super) fn stop_client(&mut self) {
        let client = i32::try_from(self.client.pid).ok().and_then(Pid::from_raw);
        if let Some(client) = client.filter(|_| self.client.pid != std::process::id()) {
            let _ = kill_process(client, Signal::STOP);
            self.client.stopped = true;
        }
    }
}
