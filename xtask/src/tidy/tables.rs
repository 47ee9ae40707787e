//! What is allowed where, as data. Exceptions are listed here and only go down.
//!
//! To let a crate or a module use something more, change its row, and say why in the commit.

/// All tables, so that tests can bring their own.
pub(crate) struct Tables {
    /// Files that are longer than the limit for all, and their own limit in lines.
    pub(crate) long_files: &'static [(&'static str, usize)],
    /// Functions that are longer than the limit for all: file, name, their own limit in lines.
    pub(crate) long_functions: &'static [(&'static str, &'static str, usize)],
    /// Files that may hold unsafe code.
    pub(crate) unsafe_files: &'static [&'static str],
    pub(crate) banned_calls: &'static [BannedCall],
    pub(crate) crates: &'static [CrateRule],
    pub(crate) modules: &'static [ModuleRule],
}

/// A call that must not be, and what to write instead.
pub(crate) struct BannedCall {
    pub(crate) call: &'static str,
    /// Beginnings of paths where it is banned; empty: everywhere.
    pub(crate) within: &'static [&'static str],
    /// Beginnings of paths where it is allowed all the same.
    pub(crate) except: &'static [&'static str],
    pub(crate) in_tests_too: bool,
    pub(crate) instead: &'static str,
}

/// Which of our crates a crate may use. A crate that is not listed has no place yet.
pub(crate) struct CrateRule {
    pub(crate) folder: &'static str,
    pub(crate) package: &'static str,
    pub(crate) uses: &'static [&'static str],
    /// What its tests, examples and benchmarks may use besides.
    pub(crate) tests_use: &'static [&'static str],
}

/// What the files below a path must not use.
pub(crate) struct ModuleRule {
    /// The beginning of a path: a folder, or a file.
    pub(crate) within: &'static str,
    pub(crate) must_not_use: &'static [&'static str],
    pub(crate) because: &'static str,
}

/// Crates that others build on: they neither print nor read clocks of the wall.
const LIBRARIES: &[&str] = &[
    "crates/sys/src",
    "crates/announce/src",
    "crates/store/src",
    "crates/keep/src",
    "crates/power/src",
    "crates/persist/src",
    "crates/heap/src",
    "crates/tx/src",
    "crates/collections/src",
    "crates/plan/src",
    "crates/record/src",
    "crates/preload/src",
    "crates/sim/src",
    "crates/wattkeep/src",
];

/// Files that compute and do nothing else: the same input gives the same output.
const PURE: &[&str] = &[
    "crates/power/src",
    "crates/announce/src",
    "crates/keep/src/control",
    "crates/keep/src/victim",
    "crates/store/src/bytes.rs",
    "crates/store/src/hash.rs",
    "crates/store/src/layout.rs",
    "crates/store/src/region.rs",
    "crates/store/src/summary.rs",
    "crates/store/src/superblock.rs",
];

const NO_PRINT: &str = "libraries return what happened, programs print it";
const NO_STUB: &str = "write it, or leave it out";

const fn everywhere(call: &'static str, in_tests_too: bool, instead: &'static str) -> BannedCall {
    BannedCall { call, within: &[], except: &[], in_tests_too, instead }
}

const fn within(call: &'static str, within: &'static [&'static str], instead: &'static str) -> BannedCall {
    BannedCall { call, within, except: &[], in_tests_too: false, instead }
}

const fn formats(within: &'static str) -> ModuleRule {
    ModuleRule {
        within,
        must_not_use: &["crate::files", "wattkeep_sys", "std::fs", "std::net", "std::thread"],
        because: "the format is bytes: what touches files sits above it",
    }
}

const KEEP_AND_STORE: &[&str] = &["crates/keep/src", "crates/store/src"];

/// The tables of this workspace.
pub(crate) static TABLES: Tables = Tables {
    long_files: &[],
    long_functions: &[],
    unsafe_files: &[
        "crates/announce/src/announcer.rs",
        "crates/announce/src/biased.rs",
        "crates/bench/src/figures/bare.rs",
        "crates/bench/src/figures/kept.rs",
        "crates/bench/src/figures/memory.rs",
        "crates/bench/src/rival/lmdb.rs",
        "crates/bench/src/rival/mimalloc.rs",
        "crates/bench/src/rival/pmdk/api.rs",
        "crates/bench/src/rival/pmdk/pool.rs",
        "crates/cli/src/memory.rs",
        "crates/heap/src/desk.rs",
        "crates/keep/src/client/fault.rs",
        "crates/keep/src/client/grant.rs",
        "crates/keep/src/client/guard.rs",
        "crates/keep/src/client/monitor.rs",
        "crates/keep/src/client/probe.rs",
        "crates/keep/src/client/protect.rs",
        "crates/keep/src/client/region.rs",
        "crates/keep/src/control/mapped.rs",
        "crates/keep/src/keeper/pages.rs",
        "crates/keep/src/models/biased.rs",
        "crates/keep/src/models/table.rs",
        "crates/keep/src/page_table.rs",
        "crates/persist/src/backing.rs",
        "crates/persist/src/interpreted.rs",
        "crates/persist/src/lines.rs",
        "crates/persist/src/pointer.rs",
        "crates/persist/src/space.rs",
        "crates/persist/src/window.rs",
        "crates/persist/src/words.rs",
        "crates/persist/src/zeroed.rs",
        "crates/preload/src/lib.rs",
        "crates/sim/src/page_table.rs",
        "crates/sys/src/buffer.rs",
        "crates/sys/src/file.rs",
        "crates/sys/src/map.rs",
        "crates/sys/src/pagemap.rs",
        "crates/sys/src/signal.rs",
        "crates/sys/src/uffd.rs",
        "crates/sys/src/uring.rs",
        "crates/torture/src/trials/raw.rs",
        "crates/torture/src/trials/stamps.rs",
        "crates/wattkeep/src/space.rs",
    ],
    banned_calls: &[
        everywhere(".unwrap()", false, "'expect' the invariant that holds, or return an error"),
        everywhere("todo!", true, NO_STUB),
        everywhere("unimplemented!", true, NO_STUB),
        everywhere("dbg!", true, "remove it"),
        everywhere("static mut", true, "use an atomic, or a lock"),
        within("print!", LIBRARIES, NO_PRINT),
        within("println!", LIBRARIES, NO_PRINT),
        within("eprint!", LIBRARIES, NO_PRINT),
        BannedCall {
            call: "eprintln!",
            within: LIBRARIES,
            // A dead keeper, a drop and a daemon have no caller to tell, and silence would break the promise.
            except: &["crates/keep/src/client/session.rs", "crates/keep/src/keeper/complain.rs"],
            in_tests_too: false,
            instead: NO_PRINT,
        },
        within("thread::sleep", KEEP_AND_STORE, "wait for the event: a futex, a descriptor, a deadline"),
        within("Instant::now", PURE, "this file is pure: take the time as an argument"),
        BannedCall {
            call: "SystemTime::now",
            within: &[],
            except: &[
                "crates/cli/",
                "crates/wattkeepd/",
                "crates/keep/src/keeper",
                "crates/store/src/host.rs",
            ],
            in_tests_too: false,
            instead: "clocks of the wall jump: take the time as an argument, or use Instant",
        },
    ],
    crates: &[
        CrateRule { folder: "crates/sys", package: "wattkeep-sys", uses: &[], tests_use: &[] },
        CrateRule {
            folder: "crates/announce",
            package: "wattkeep-announce",
            uses: &["wattkeep-sys"],
            tests_use: &[],
        },
        CrateRule {
            folder: "crates/persist",
            package: "wattkeep-persist",
            uses: &["wattkeep-sys", "wattkeep-announce"],
            tests_use: &[],
        },
        CrateRule {
            folder: "crates/heap",
            package: "wattkeep-heap",
            uses: &["wattkeep-announce", "wattkeep-persist"],
            tests_use: &["wattkeep-sim"],
        },
        CrateRule {
            folder: "crates/tx",
            package: "wattkeep-tx",
            uses: &["wattkeep-persist", "wattkeep-heap"],
            tests_use: &["wattkeep-sim"],
        },
        CrateRule {
            folder: "crates/collections",
            package: "wattkeep-collections",
            uses: &["wattkeep-persist", "wattkeep-heap", "wattkeep-tx"],
            tests_use: &["wattkeep-sim"],
        },
        CrateRule { folder: "crates/power", package: "wattkeep-power", uses: &[], tests_use: &[] },
        CrateRule {
            folder: "crates/store",
            package: "wattkeep-store",
            uses: &["wattkeep-sys"],
            tests_use: &["wattkeep-sim"],
        },
        CrateRule {
            folder: "crates/keep",
            package: "wattkeep-keep",
            uses: &["wattkeep-sys", "wattkeep-announce", "wattkeep-store", "wattkeep-power"],
            tests_use: &["wattkeep-sim"],
        },
        CrateRule {
            folder: "crates/sim",
            package: "wattkeep-sim",
            uses: &["wattkeep-sys", "wattkeep-store", "wattkeep-keep", "wattkeep-power", "wattkeep-persist"],
            tests_use: &[],
        },
        CrateRule {
            folder: "crates/wattkeep",
            package: "wattkeep",
            uses: &[
                "wattkeep-sys",
                "wattkeep-store",
                "wattkeep-keep",
                "wattkeep-power",
                "wattkeep-persist",
                "wattkeep-heap",
                "wattkeep-tx",
                "wattkeep-collections",
            ],
            tests_use: &["wattkeep-sim"],
        },
        CrateRule {
            folder: "crates/wattkeepd",
            package: "wattkeepd",
            uses: &["wattkeep-sys", "wattkeep-store", "wattkeep-keep", "wattkeep-power", "wattkeep"],
            tests_use: &["wattkeep-sim"],
        },
        CrateRule {
            folder: "crates/bench",
            package: "wattkeep-bench",
            uses: &[
                "wattkeep-sys",
                "wattkeep-store",
                "wattkeep",
                "wattkeep-persist",
                "wattkeep-heap",
                "wattkeep-tx",
                "wattkeep-collections",
            ],
            tests_use: &[],
        },
        CrateRule {
            folder: "crates/plan",
            package: "wattkeep-plan",
            uses: &["wattkeep-sys", "wattkeep-keep", "wattkeep-power", "wattkeep-bench"],
            tests_use: &[],
        },
        CrateRule {
            folder: "crates/record",
            package: "wattkeep-record",
            uses: &["wattkeep-sys"],
            tests_use: &[],
        },
        CrateRule {
            folder: "crates/preload",
            package: "wattkeep-preload",
            uses: &["wattkeep-record"],
            tests_use: &[],
        },
        CrateRule {
            folder: "crates/cli",
            package: "wattkeep-cli",
            uses: &[
                "wattkeep-sys",
                "wattkeep-store",
                "wattkeep-keep",
                "wattkeep-power",
                "wattkeep",
                "wattkeep-bench",
                "wattkeep-plan",
                "wattkeep-record",
            ],
            tests_use: &["wattkeep-sim"],
        },
        CrateRule {
            folder: "crates/torture",
            package: "wattkeep-torture",
            uses: &[
                "wattkeep-sys",
                "wattkeep-store",
                "wattkeep-keep",
                "wattkeep-power",
                "wattkeep",
                "wattkeep-persist",
                "wattkeep-heap",
                "wattkeep-tx",
                "wattkeep-collections",
                "wattkeep-sim",
            ],
            tests_use: &["wattkeepd", "wattkeep-cli"],
        },
        CrateRule { folder: "xtask", package: "xtask", uses: &[], tests_use: &[] },
    ],
    modules: &[
        ModuleRule {
            within: "crates/keep/src/control",
            must_not_use: &["crate::client", "crate::keeper"],
            because: "both sides stand on the shared words, which know neither",
        },
        ModuleRule {
            within: "crates/keep/src/victim",
            must_not_use: &["crate::client", "crate::keeper", "wattkeep_sys", "std::time"],
            because: "a policy chooses pages from its own state: no addresses, no clocks",
        },
        ModuleRule {
            within: "crates/power/src",
            must_not_use: &["std::fs", "std::io", "std::net", "std::thread", "std::time"],
            because: "it is arithmetic",
        },
        formats("crates/store/src/format"),
        formats("crates/store/src/bytes.rs"),
        formats("crates/store/src/layout.rs"),
        formats("crates/store/src/region.rs"),
        formats("crates/store/src/summary.rs"),
        formats("crates/store/src/superblock.rs"),
    ],
};
