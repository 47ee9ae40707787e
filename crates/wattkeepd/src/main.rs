//! The keeper as a process of its own.
//!
//! `wattkeepd --embedded` serves one program: the library starts it with a socket as standard input,
//! and it ends after that program, when everything is on the SSD. It ignores requests to end, because
//! ending early is the one thing it must not do.

use std::os::fd::AsFd;
use std::process::ExitCode;

const USAGE: &str = "\
wattkeepd: keeps the persistent memory of one program

Usage: wattkeepd --embedded

The library starts this program; there is no need to start it by hand. It takes its requests from a
socket on standard input, and ends after the program does, when everything is on the SSD.

Options:
  --embedded  serve the program at the other end of standard input
  --help      print this text
  --version   print the version

See 'wattkeep --help' for what people use.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--embedded"] => embedded(),
        ["--help" | "-h"] => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        ["--version" | "-V"] => {
            println!("wattkeepd {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("wattkeepd: it is started by programs that use Wattkeep; see 'wattkeepd --help'");
            ExitCode::from(2)
        }
    }
}

fn embedded() -> ExitCode {
    wattkeep_keep::keeper::ignore_requests_to_end();
    let Ok(socket) = std::io::stdin().as_fd().try_clone_to_owned() else {
        eprintln!("wattkeepd: standard input is closed; see 'wattkeepd --help'");
        return ExitCode::from(2);
    };
    wattkeep_keep::keeper::serve::run(socket);
    ExitCode::SUCCESS
}
