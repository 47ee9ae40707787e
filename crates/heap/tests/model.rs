//! Any history of calls, beside a model of it: what is allocated stays where it is, apart from all else, and
//! is there again after a restart at any moment.

mod common;

use std::collections::BTreeMap;

use common::{heap, reopened};
use proptest::prelude::*;
use wattkeep_heap::{Capacity, Heap, HeapError};

#[derive(Clone, Debug)]
enum Step {
    Alloc { bytes: u64, align: u32 },
    Free(prop::sample::Index),
    Resize(prop::sample::Index, u64),
    Publish { allocated: Vec<u64>, freed: Vec<prop::sample::Index>, retire: bool },
    Capacity(u64),
    Reserve(u64),
    Reopen,
}

fn bytes() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 1u64..200, 3 => 200u64..20_000, 1 => 20_000u64..300_000]
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        8 => (bytes(), prop_oneof![8 => Just(0u32), 1 => 4u32..14])
            .prop_map(|(bytes, align)| Step::Alloc { bytes, align }),
        6 => index().prop_map(Step::Free),
        2 => (index(), bytes()).prop_map(|(which, bytes)| Step::Resize(which, bytes)),
        2 => (prop::collection::vec(bytes(), 0..6), prop::collection::vec(index(), 0..4), any::<bool>())
            .prop_map(|(allocated, freed, retire)| Step::Publish { allocated, freed, retire }),
        1 => bytes().prop_map(Step::Capacity),
        1 => bytes().prop_map(Step::Reserve),
        1 => Just(Step::Reopen),
    ]
}

/// What should be allocated: offset, bytes, and what was stored there.
struct Model {
    heap: Heap,
    objects: BTreeMap<u64, (u64, u8)>,
    capacity: Vec<Capacity>,
    tid: u64,
    stamp: u8,
}

impl Model {
    fn new() -> Self {
        Self { heap: heap(8 << 20), objects: BTreeMap::new(), capacity: Vec::new(), tid: 0, stamp: 0 }
    }

    fn pick(&self, which: &prop::sample::Index) -> Option<u64> {
        (!self.objects.is_empty())
            .then(|| *self.objects.keys().nth(which.index(self.objects.len())).expect("an object"))
    }

    fn keep(&mut self, at: u64, bytes: u64) {
        let before = self.objects.range(..at).next_back();
        assert!(before.is_none_or(|(other, (len, _))| other + len <= at), "{at:#x} lies in another object");
        let behind = self.objects.range(at..).next();
        assert!(behind.is_none_or(|(other, _)| at + bytes <= *other), "{at:#x} reaches into another object");
        assert!(self.heap.usable_size(at).expect("an object") >= bytes);
        self.stamp = self.stamp.wrapping_add(1);
        self.heap.space().write_bytes(at as usize, &vec![self.stamp; bytes as usize]).expect("inside");
        self.objects.insert(at, (bytes, self.stamp));
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Alloc { bytes, align } => match self.heap.alloc_aligned(*bytes, 1 << align) {
                Ok(at) => {
                    assert!(at.is_multiple_of(1 << align));
                    self.keep(at, *bytes);
                }
                Err(error) => assert!(matches!(error, HeapError::OutOfSpace { .. }), "{error}"),
            },
            Step::Free(which) => {
                if let Some(at) = self.pick(which) {
                    self.heap.free(at).expect("an object");
                    self.objects.remove(&at);
                    assert_ne!(self.heap.free(at), Ok(()), "freed twice");
                }
            }
            Step::Resize(which, bytes) => {
                if let Some(at) = self.pick(which) {
                    let (old, stamp) = self.objects[&at];
                    let moved = self.heap.resize(at, *bytes).expect("room");
                    let mut now = vec![0; old.min(*bytes) as usize];
                    self.heap.space().read_bytes(moved as usize, &mut now).expect("inside");
                    assert!(now.iter().all(|byte| *byte == stamp), "a resize keeps the bytes");
                    self.objects.remove(&at);
                    self.keep(moved, *bytes);
                }
            }
            Step::Publish { allocated, freed, retire } => self.publish(allocated, freed, *retire),
            Step::Capacity(bytes) => self.capacity.push(self.heap.cap_alloc(*bytes).expect("room")),
            Step::Reserve(bytes) => {
                let at = self.heap.reserve(*bytes).expect("room");
                assert!(self.heap.free(at).is_err(), "not an allocation");
                if bytes.is_multiple_of(2) {
                    self.heap.cancel(at).expect("a reservation");
                }
            }
            Step::Reopen => {
                self.heap = reopened(&self.heap);
                self.capacity.clear();
            }
        }
    }

    fn publish(&mut self, allocated: &[u64], freed: &[prop::sample::Index], retire: bool) {
        self.tid += 1;
        let reserved: Vec<u64> =
            allocated.iter().map(|bytes| self.heap.reserve(*bytes).expect("room")).collect();
        let mut freed: Vec<u64> = freed.iter().filter_map(|which| self.pick(which)).collect();
        freed.sort_unstable();
        freed.dedup();
        self.heap.publish(3, self.tid, &reserved, &freed).expect("a group");
        assert_eq!(self.heap.published(3), Ok(self.tid));
        for at in freed {
            self.objects.remove(&at);
        }
        for (at, bytes) in reserved.into_iter().zip(allocated) {
            self.keep(at, *bytes);
        }
        if retire {
            self.heap.retire(3, self.tid).expect("a lane");
        }
    }

    fn check(&self, heap: &Heap) {
        for (at, (bytes, stamp)) in &self.objects {
            assert!(heap.is_allocated(*at), "{at:#x} is gone");
            let mut now = vec![0; *bytes as usize];
            heap.space().read_bytes(*at as usize, &mut now).expect("inside");
            assert!(now.iter().all(|byte| byte == stamp), "{at:#x} was overwritten");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 64 }, ..ProptestConfig::default() })]
    #[test]
    fn a_heap_does_what_its_model_does(steps in prop::collection::vec(step(), 1..150)) {
        let mut model = Model::new();
        for step in &steps {
            model.run(step);
        }
        model.check(&model.heap);
        let again = reopened(&model.heap);
        model.check(&again);
        for at in model.objects.keys() {
            again.free(*at).expect("an object of before");
        }
    }
}
