//! Synchronous fault signals: installing a handler, reading what faulted, chaining to the handler
//! that was there before.
//!
//! # Safety
//!
//! 1. A handler makes async-signal-safe calls only.
//! 2. `info` and `context` are the pointers that the kernel passed to the handler, used before it
//!    returns.
//! 3. A previous action is called with the arguments of the signal it was installed for.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::sync::atomic::{AtomicI32, Ordering};

/// The signals by which memory faults reach a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultSignal {
    /// userfaultfd's refusal of a page.
    Bus,
    /// mprotect's refusal of an access.
    Segv,
}

impl FaultSignal {
    /// The kernel's number.
    pub fn number(self) -> c_int {
        match self {
            FaultSignal::Bus => libc::SIGBUS,
            FaultSignal::Segv => libc::SIGSEGV,
        }
    }
}

/// What the kernel tells a handler about a signal.
pub type SigInfo = libc::siginfo_t;

/// A handler of the three-argument kind.
pub type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// The action that a signal had before ours.
pub struct Previous(libc::sigaction);

// SAFETY: 3: a sigaction is plain data; calling it is as safe from any thread as the kernel's call.
unsafe impl Send for Previous {}
// SAFETY: 3: as above.
unsafe impl Sync for Previous {}

/// Installs `handler`, to run on the alternate stack where the thread has one.
///
/// # Safety
/// 1: the handler keeps to async-signal-safe calls.
pub unsafe fn install(signal: FaultSignal, handler: Handler) -> io::Result<Previous> {
    // SAFETY: 3: an all-zero sigaction is valid; the fields are set below.
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    let mut previous = MaybeUninit::uninit();
    // SAFETY: 3: both pointers are valid for the call.
    if unsafe { libc::sigaction(signal.number(), &action, previous.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: 3: the kernel filled it in, as the call succeeded.
    Ok(Previous(unsafe { previous.assume_init() }))
}

/// Lets the installed handler of `signal` run on the stack of the thread it interrupts: alternate stacks
/// are too small for a backtrace.
pub fn leave_alternate_stack(signal: FaultSignal) -> io::Result<()> {
    // SAFETY: 3: an all-zero sigaction is valid, and is filled in by the call.
    let mut action: libc::sigaction = unsafe { zeroed() };
    // SAFETY: 3: `action` is valid for both calls; the handler stays the same.
    let answer = unsafe {
        libc::sigaction(signal.number(), std::ptr::null(), &mut action);
        action.sa_flags &= !libc::SA_ONSTACK;
        libc::sigaction(signal.number(), &action, std::ptr::null_mut())
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Calls `work` in every child that this process forks, before fork(2) returns there.
///
/// # Safety
/// 1: `work` keeps to async-signal-safe calls.
pub unsafe fn after_fork_in_child(work: unsafe extern "C" fn()) -> io::Result<()> {
    // SAFETY: 1 by the caller.
    match unsafe { libc::pthread_atfork(None, None, Some(work)) } {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// True when the current action of `signal` is `handler`.
pub fn is_installed(signal: FaultSignal, handler: Handler) -> bool {
    // SAFETY: 3: asks for the current action only.
    let mut action: libc::sigaction = unsafe { zeroed() };
    // SAFETY: 3: `action` is valid for the call.
    let answer = unsafe { libc::sigaction(signal.number(), std::ptr::null(), &mut action) };
    answer == 0 && action.sa_sigaction == handler as *const () as usize
}

/// True when the calling thread blocks `signal`: a fault would kill the process.
pub fn is_blocked(signal: FaultSignal) -> bool {
    // SAFETY: 3: an all-zero set is valid, and the call only fills it.
    let mut set: libc::sigset_t = unsafe { zeroed() };
    // SAFETY: 3: `set` is valid for both calls.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut set);
        libc::sigismember(&set, signal.number()) == 1
    }
}

/// Hands a signal that is not ours to the action installed before ours. Where that was the default,
/// it is put back, so that the fault repeats and ends the process as it would have without us.
///
/// # Safety
/// 2 and 3 of the module.
pub unsafe fn chain(previous: &Previous, signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let action = &previous.0;
    match action.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: 3: restores the default action of the same signal.
            let mut default: libc::sigaction = unsafe { zeroed() };
            default.sa_sigaction = libc::SIG_DFL;
            // SAFETY: 3: `default` is valid for the call.
            unsafe { libc::sigaction(signal, &default, std::ptr::null_mut()) };
        }
        address if action.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: 3: SA_SIGINFO says that this is a three-argument handler.
            let handler: Handler = unsafe { std::mem::transmute::<usize, Handler>(address) };
            handler(signal, info, context);
        }
        address => {
            // SAFETY: 3: without SA_SIGINFO it takes the number alone.
            let handler = unsafe { std::mem::transmute::<usize, extern "C" fn(c_int)>(address) };
            handler(signal);
        }
    }
}

/// The address whose access faulted.
///
/// # Safety
/// 2 of the module.
pub unsafe fn fault_address(info: *const libc::siginfo_t) -> usize {
    // SAFETY: 2: for SIGBUS and SIGSEGV the kernel fills `si_addr`.
    unsafe { (*info).si_addr() as usize }
}

/// Whether the faulting access was a store; `None` where the architecture does not tell.
///
/// # Safety
/// 2 of the module.
pub unsafe fn fault_is_write(context: *const c_void) -> Option<bool> {
    #[cfg(target_arch = "x86_64")]
    {
        let context = context.cast::<libc::ucontext_t>();
        // SAFETY: 2: the kernel's own ucontext of this fault.
        let error = unsafe { (*context).uc_mcontext.gregs[libc::REG_ERR as usize] };
        // Bit 1 of the x86 page-fault error code: set for a write.
        Some(error & 2 != 0)
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = context;
        None
    }
}

/// How a terminal, a person or an init system asks a program to end.
const REQUESTS_TO_END: [c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Ignores the signals by which a terminal or an init system ends programs: for a process that ends
/// on its own terms, when everything is on the SSD.
pub fn ignore_requests_to_end() {
    for signal in REQUESTS_TO_END {
        // SAFETY: 1: no handler of ours is involved.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Who gets the requests to end that somebody sends to us; 0 for nobody.
static HEIR: AtomicI32 = AtomicI32::new(0);

/// Passes requests to end on to process `pid`, and stays alive itself. What a terminal sends reaches the
/// whole foreground group anyway, and is not passed on a second time. A later call replaces `pid`; 0 means
/// that nobody gets them.
pub fn pass_requests_to_end(pid: i32) -> io::Result<()> {
    HEIR.store(pid, Ordering::SeqCst);
    for signal in REQUESTS_TO_END {
        // SAFETY: 3: an all-zero sigaction is valid; the fields are set below.
        let mut action: libc::sigaction = unsafe { zeroed() };
        action.sa_sigaction = pass_on as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        // SAFETY: 1: the handler makes one kill(2); 3: `action` is valid for the call.
        if unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

extern "C" fn pass_on(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    let heir = HEIR.load(Ordering::SeqCst);
    // SAFETY: 2: the kernel's own siginfo of this signal.
    let sent_by_a_process = unsafe { (*info).si_code } <= 0;
    if heir > 0 && sent_by_a_process {
        // SAFETY: 1: kill(2) is async-signal-safe, and a failure changes nothing here.
        unsafe { libc::kill(heir, signal) };
    }
}
