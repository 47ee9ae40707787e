//! What each crate's manifest must say, and which of our crates it may depend on.

use super::files::TextFile;
use super::imports::crate_of;
use super::tables::Tables;
use super::{Report, Rule};

/// Description, and dependencies on our own crates.
pub(crate) fn check(file: &TextFile, tables: &Tables, report: &mut Report) {
    let entries = entries(&file.text);
    if !entries.iter().any(|entry| entry.section == "package") {
        return;
    }
    let described = entries.iter().any(|entry| {
        entry.section == "package" && entry.key == "description" && entry.value.len() > r#""""#.len()
    });
    if !described {
        let instead = "add a description: one line on what the crate is for";
        report.add(&file.path, 1, Rule::CrateDescription, instead);
    }
    let Some(rule) = crate_of(&file.path, tables) else {
        let instead = "a crate without a place: add it to the crates in tables.rs";
        report.add(&file.path, 1, Rule::CrateImport, instead);
        return;
    };
    for entry in &entries {
        let Some((kind, package)) = entry.dependency() else {
            continue;
        };
        let ours = package.starts_with("wattkeep");
        if ours && package != rule.package && !rule.may_use(package, kind == "dev-dependencies") {
            report.add(&file.path, entry.line, Rule::CrateImport, rule.instead_of(package));
        }
    }
}

struct Entry<'a> {
    section: &'a str,
    key: &'a str,
    value: &'a str,
    /// Counted from 1.
    line: usize,
}

impl<'a> Entry<'a> {
    /// The kind of dependency and the package, if this entry is one.
    fn dependency(&self) -> Option<(&'a str, &'a str)> {
        let (table, package) = match self.section.rsplit_once("dependencies.") {
            // `[dependencies.name]`: the keys below say how, the section says what.
            Some((_, package)) => (self.section.strip_suffix(package)?.trim_end_matches('.'), package),
            None => (self.section, self.key.split('.').next().unwrap_or(self.key)),
        };
        let kind = table.rsplit('.').next().unwrap_or(table);
        kind.ends_with("dependencies").then_some((kind, package.trim_matches('"')))
    }
}

/// Keys with their sections. Enough of TOML for a manifest: one entry a line.
fn entries(text: &str) -> Vec<Entry<'_>> {
    let mut section = "";
    let mut entries = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        } else if let Some((key, value)) = line.split_once('=') {
            let (key, value) = (key.trim(), value.trim());
            entries.push(Entry { section, key, value, line: index + 1 });
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tables::TABLES;
    use crate::tidy::tests::rules_of;

    fn found(path: &str, text: &str) -> Vec<Rule> {
        let file = TextFile { path: path.to_owned(), size_bytes: 0, text: text.to_owned() };
        rules_of(|report| check(&file, &TABLES, report))
    }

    const PACKAGE: &str = "[package]\ndescription = \"x\"\n";

    #[test]
    fn a_crate_is_described_and_has_a_place() {
        assert_eq!(found("Cargo.toml", "[workspace]"), []);
        assert_eq!(found("crates/sys/Cargo.toml", PACKAGE), []);
        assert_eq!(found("crates/sys/Cargo.toml", "[package]\nname = \"a\""), [Rule::CrateDescription]);
        let empty = "[package]\ndescription = \"\"";
        assert_eq!(found("crates/sys/Cargo.toml", empty), [Rule::CrateDescription]);
        assert_eq!(found("crates/new/Cargo.toml", PACKAGE), [Rule::CrateImport]);
    }

    #[test]
    fn dependencies_go_downward() {
        for bad in [
            "[dependencies]\nwattkeep-keep.workspace = true",
            "[dependencies]\nwattkeep-keep = { path = \"../keep\" }",
            "[dependencies.wattkeep-keep]\nworkspace = true",
            "[target.'cfg(unix)'.dependencies]\nwattkeep-keep.workspace = true",
            "[build-dependencies]\nwattkeep-power.workspace = true",
            "[dependencies]\nwattkeep-sim.workspace = true",
            "[dev-dependencies]\nwattkeep-cli.workspace = true",
        ] {
            assert_eq!(
                found("crates/store/Cargo.toml", &format!("{PACKAGE}{bad}")),
                [Rule::CrateImport],
                "{bad}"
            );
        }
        for good in [
            "[dependencies]\nwattkeep-sys.workspace = true\nlibc.workspace = true",
            "[dev-dependencies]\nwattkeep-sim.workspace = true",
            "[dependencies.wattkeep-sys]\nworkspace = true",
        ] {
            assert_eq!(found("crates/store/Cargo.toml", &format!("{PACKAGE}{good}")), [], "{good}");
        }
    }
}
