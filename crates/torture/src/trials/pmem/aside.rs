//! Versioned objects beside a table, changed by its transactions and by some of their own.
//!
//! What transaction `number` of a table writes to them follows from seed and number. Behind some transactions
//! comes one that writes the first object and nothing else: it may be lost until a later transaction of the
//! table writes objects, too, and it is never there without those before it.

use wattkeep_sim::random::Random;
use wattkeep_tx::versions::{Pace, Persistence, Versioned, Versions};
use wattkeep_tx::{Manager, Tx, TxError};

use super::changes::{End, transaction};

/// Objects: the first is that of the transactions of their own.
const OBJECTS: u64 = 5;

/// More than a line.
type Value = [u64; 11];

/// Objects of one table.
pub(crate) struct Aside {
    objects: Versioned<Value>,
    seed: u64,
}

/// The objects that transaction `number` writes; and whether one of the first object comes behind it.
fn writes(seed: u64, number: u64) -> (Vec<u64>, bool) {
    let mut random = Random::new(seed.rotate_left(17) ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let written = (0..random.below(4)).map(|_| 1 + random.below(OBJECTS - 1)).collect();
    (written, random.chance(1, 3))
}

fn value(seed: u64, number: u64) -> Value {
    if number == 0 {
        return [0; 11];
    }
    let mut random = Random::new(seed ^ number << 20);
    std::array::from_fn(|word| if word == 0 { number } else { random.number() })
}

impl Aside {
    /// Opens those of table `number`, or makes them.
    pub(crate) fn open(manager: &Manager, number: usize, seed: u64) -> Result<Self, TxError> {
        let mut random = Random::new(seed);
        let pace = Pace { threshold: 0.6, behind_max: 1 + random.below(9) };
        let kinds = [Persistence::Each, Persistence::ByHand(pace), Persistence::Decoupled(pace)];
        let versions = [Versions::Two, Versions::Three][random.below(2) as usize];
        let kind = kinds[random.below(3) as usize];
        let name = format!("aside-{number}");
        Ok(Self { objects: Versioned::open_or_create_root(manager, &name, OBJECTS, versions, kind)?, seed })
    }

    /// What transaction `number` of the table does here.
    pub(crate) fn change(&self, tx: &mut Tx<'_>, number: u64) -> Result<(), TxError> {
        let (written, _) = writes(self.seed, number);
        written.iter().try_for_each(|object| self.objects.write(tx, *object, &value(self.seed, number)))
    }

    /// What comes behind it.
    pub(crate) fn follow(&self, manager: &Manager, number: u64) -> Result<(), TxError> {
        let (written, followed) = writes(self.seed, number);
        if followed {
            manager.run(|tx| self.objects.write(tx, 0, &value(self.seed, number)))?;
        }
        self.objects.persist_some(written.len())?;
        Ok(())
    }

    /// Makes what came behind transactions up to `last` again, if a cut took it.
    pub(crate) fn catch_up(&self, manager: &Manager, last: u64) -> Result<(), TxError> {
        let Some(number) = (1..=last).rev().find(|number| writes(self.seed, *number).1) else {
            return Ok(());
        };
        if self.objects.read(0)?[0] < number {
            manager.run(|tx| self.objects.write(tx, 0, &value(self.seed, number)))?;
        }
        Ok(())
    }

    /// Whether all objects are what the transactions up to `last` left.
    pub(crate) fn verify(&self, last: u64) -> Result<(), String> {
        let mut expected = [0; OBJECTS as usize];
        let (mut follower, mut durable) = (0, 0);
        let mut followers = Vec::new();
        let commits = |number| transaction(self.seed, number).1 == End::Commit;
        for number in 1.. {
            let (written, followed) = writes(self.seed, number);
            if commits(number) {
                if number > last {
                    break;
                }
                for object in &written {
                    expected[*object as usize] = number;
                }
                if !written.is_empty() {
                    durable = follower;
                    followers.clear();
                }
            }
            if followed {
                follower = number;
                followers.push(number);
            }
        }
        for (object, expected) in (0..).zip(expected) {
            let found = self.objects.read(object).map_err(|error| error.to_string())?;
            let may_be = match object {
                0 => found[0] == durable || followers.contains(&found[0]),
                _ => found[0] == expected,
            };
            if !may_be || found != value(self.seed, found[0]) {
                return Err(format!(
                    "versioned object {object} is of transaction {}, not {expected}, {durable} or {followers:?}",
                    found[0]
                ));
            }
        }
        Ok(())
    }
}
