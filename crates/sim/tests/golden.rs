//! Golden scripts: what becomes of pages, step by step, for people who want to see it.
//!
//! A line that begins with `>` is a step of a script, or `show`; what follows it is what the machine then
//! says. `WATTKEEP_GOLDEN=write cargo test -p wattkeep-sim --test golden` writes the answers anew: read the
//! difference before you commit it.

use std::fmt::Write;
use std::path::PathBuf;

use wattkeep_sim::campaign::corners;
use wattkeep_sim::world::World;

/// The script with the answers of a machine of today.
fn answered(script: &str) -> String {
    let mut world = World::new(corners::machine(), 1).expect("a healthy machine");
    let mut text = String::new();
    let asked =
        script.lines().filter(|line| line.starts_with('>') || line.starts_with('#') || line.is_empty());
    for line in asked {
        let _ = writeln!(text, "{line}");
        let Some(step) = line.strip_prefix('>') else { continue };
        let step = step.split('#').next().unwrap_or_default().trim();
        if step == "show" {
            text += &world.show();
        } else {
            let op = step.parse().unwrap_or_else(|e| panic!("{e}"));
            if let Err(trouble) = world.apply(op) {
                let _ = writeln!(text, "{trouble}");
            }
        }
    }
    text
}

#[test]
fn machines_answer_the_golden_scripts_as_written() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let files = std::fs::read_dir(&folder).expect("the folder of the golden scripts");
    let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    paths.sort();
    assert!(paths.len() >= 6, "the golden scripts are in {}", folder.display());
    let write = std::env::var("WATTKEEP_GOLDEN").is_ok_and(|value| value == "write");
    for path in paths {
        let written = std::fs::read_to_string(&path).expect("a golden script");
        let now = answered(&written);
        if write {
            std::fs::write(&path, now).expect("the golden script can be written");
        } else {
            assert_eq!(written, now, "{}: see the head of tests/golden.rs", path.display());
        }
    }
}
