//! A second thread for work that comes in loads: takes them in order, and gives each back done.
//!
//! Knows nothing of what a load holds. Never has more loads than its bound; it ends, and is waited for,
//! when it is dropped.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{Builder, JoinHandle};

/// The thread, with the way to it and back.
pub(super) struct Worker<T> {
    /// `None` once the thread is to end.
    way_in: Option<SyncSender<T>>,
    way_back: Receiver<T>,
    thread: Option<JoinHandle<()>>,
    /// With the thread.
    loads: usize,
    loads_max: usize,
}

impl<T: Send + 'static> Worker<T> {
    /// Starts the thread. `None` when the system has none to give.
    pub(super) fn start(
        name: &str,
        loads_max: usize,
        mut work: impl FnMut(&mut T) + Send + 'static,
    ) -> Option<Self> {
        let (way_in, handed_over) = sync_channel::<T>(loads_max);
        let (done, way_back) = sync_channel(loads_max);
        let run = move || {
            for mut load in handed_over {
                work(&mut load);
                if done.send(load).is_err() {
                    return;
                }
            }
        };
        let thread = Builder::new().name(name.into()).spawn(run).ok()?;
        Some(Self { way_in: Some(way_in), way_back, thread: Some(thread), loads: 0, loads_max })
    }

    /// The thread can take another load.
    pub(super) fn wants_more(&self) -> bool {
        self.loads < self.loads_max
    }

    /// The thread has loads that were not taken back.
    pub(super) fn is_at_work(&self) -> bool {
        self.loads > 0
    }

    /// Gives the thread a load, when it [`Self::wants_more`].
    pub(super) fn hand_over(&mut self, load: T) {
        let way_in = self.way_in.as_ref().filter(|_| self.wants_more()).expect("the thread wants more");
        way_in.send(load).expect("the thread lives as long as its way in");
        self.loads += 1;
    }

    /// Takes a load back that is done. `None` when none is ready.
    pub(super) fn take_done(&mut self) -> Option<T> {
        match self.way_back.try_recv() {
            Ok(load) => {
                self.loads -= 1;
                Some(load)
            }
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => panic!("the thread lives as long as its way in"),
        }
    }

    /// Waits until a load is done. `None` when the thread has none.
    pub(super) fn wait_for_done(&mut self) -> Option<T> {
        if !self.is_at_work() {
            return None;
        }
        let load = self.way_back.recv().expect("what was handed over comes back");
        self.loads -= 1;
        Some(load)
    }
}

impl<T> Drop for Worker<T> {
    fn drop(&mut self) {
        self.way_in = None;
        if let Some(thread) = self.thread.take() {
            // A panic was met before, at the way back.
            let _ = thread.join();
        }
    }
}
