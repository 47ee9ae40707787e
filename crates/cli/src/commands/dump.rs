//! `wattkeep dump`: the bytes of a region as the SSD has them, every page verified.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::json;
use wattkeep_store::RegionRecord;
use wattkeep_store::types::{PAGE_SIZE, PageId};

use crate::answer::{Answer, Output};
use crate::args::DumpArgs;
use crate::failure::Failure;
use crate::opened::{self, PageLog};
use crate::text::PAGE;

const LINE_BYTES: usize = 16;

pub(crate) fn run(args: &DumpArgs, output: Output) -> Result<Answer, Failure> {
    let (mut store, _) = opened::read_only(&args.store)?;
    let region = opened::region(&store, &args.store, &args.region)?;
    if let Some((first, end)) = args.page {
        return hex(&mut store, &region, first, end, output);
    }
    match &args.output {
        Some(path) => {
            to_file(&mut store, &region, path)?;
            let bytes = u64::from(region.pages) * PAGE;
            let text = format!("wrote {bytes} bytes of region '{}' to {}", region.name, path.display());
            Ok(Answer::new(text, json!({ "region": region.name, "bytes": bytes, "file": path })))
        }
        None if output.json => {
            Err(Failure::usage("raw bytes are no JSON; name a file with --output, or pages with --page"))
        }
        None if std::io::stdout().is_terminal() => Err(Failure::usage(
            "raw bytes do not belong on a terminal; name a file with --output, or pages with --page",
        )),
        None => to_stdout(&mut store, &region),
    }
}

fn hex(
    store: &mut PageLog,
    region: &RegionRecord,
    first: u32,
    end: u32,
    output: Output,
) -> Result<Answer, Failure> {
    if end > region.pages {
        let (name, last) = (&region.name, region.pages.saturating_sub(1));
        return Err(Failure::usage(format!(
            "the last page of region '{name}' is {last}; name pages up to it"
        )));
    }
    let mut pages = Vec::new();
    for page in first..end {
        let bytes = read(store, region, page)?;
        if output.json {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            pages.push(json!({ "page": page, "bytes": hex }));
        } else {
            output.say(hex_lines(page, &bytes).trim_end());
        }
    }
    if output.json {
        Ok(Answer::new("", json!({ "region": region.name, "pages": pages })))
    } else {
        Ok(Answer::printed())
    }
}

/// A page as `hexdump -C` shows it, repeated lines folded into a star.
fn hex_lines(page: u32, bytes: &[u8; PAGE_SIZE]) -> String {
    let mut text = format!("page {page}\n");
    let mut before: Option<&[u8]> = None;
    let mut folded = false;
    for (number, line) in bytes.chunks(LINE_BYTES).enumerate() {
        if before == Some(line) {
            text += if folded { "" } else { "*\n" };
            folded = true;
            continue;
        }
        (before, folded) = (Some(line), false);
        let hex: Vec<_> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let shown =
            |byte: &u8| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '.' };
        let readable: String = line.iter().map(shown).collect();
        text += &format!(
            "{:010x}  {}  |{readable}|\n",
            u64::from(page) * PAGE + (number * LINE_BYTES) as u64,
            hex.join(" ")
        );
    }
    text
}

/// One page; zeros when it was never written.
fn read(store: &mut PageLog, region: &RegionRecord, page: u32) -> Result<[u8; PAGE_SIZE], Failure> {
    let mut bytes = [0; PAGE_SIZE];
    store.read_page_blocking(PageId { region: region.id, page }, &mut bytes)?;
    Ok(bytes)
}

fn to_stdout(store: &mut PageLog, region: &RegionRecord) -> Result<Answer, Failure> {
    let mut out = std::io::stdout().lock();
    for page in 0..region.pages {
        let bytes = read(store, region, page)?;
        match out.write_all(&bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => break,
            Err(error) => return Err(Failure::system("write to", Path::new("standard output"), &error)),
        }
    }
    Ok(Answer::printed())
}

/// Pages that were never written stay a hole.
fn to_file(store: &mut PageLog, region: &RegionRecord, path: &Path) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::system("write", path, &error);
    let file = File::create(path).map_err(failed)?;
    file.set_len(u64::from(region.pages) * PAGE).map_err(failed)?;
    opened::each_page(store, region, "dumping", |page, bytes| {
        file.write_all_at(bytes, u64::from(page) * PAGE).map_err(failed)
    })?;
    file.sync_all().map_err(failed)
}
