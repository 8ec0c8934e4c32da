"""The thread pool in LLVM text: the job, the claiming of chunks and the workers' loop.

Each thread has a range of the chunks, in the same order for all jobs: what a loop left in the caches of a core is there when
the next one goes through it. A range's ticket is (generation << 32 | end << 16 | next); its thread claims from the front,
threads that have no more to do from the back.

Order of events that makes a claim safe: the caller first closes the old tickets, then writes the new job, then opens the
tickets of the next generation. A worker reads a ticket, then the job, then claims by compare-and-swap on that ticket;
had it seen any word of a newer job, the ticket it holds is closed already and the claim fails.
"""
from __future__ import annotations

from loopwright.lower.runtime.sleep_text import sleep_text

CALLER_SHARE = 4  # how much less patient the caller is, which yields its core to those it waits for
MOST_CHUNKS_BITS = 15
MOST_RANGES = 16  # more threads have them in common
CHUNK = 1 << 16  # units of work: some 16k elements of light work
THRESHOLD = 4 * CHUNK  # some 5 us: loops of less work run where they are
WAKING = 8 * THRESHOLD  # some 40 us: loops of less work wake nobody
DEBT = 8 * WAKING  # work of loops that went without threads because these slept, which is worth waking them
MOST_CHUNKS = 128  # long stretches of memory are read faster than short ones; it says nothing of how many threads there are
UNSTARTED, SERIAL, PARALLEL = 0, 1, 2
LOOPS = ("lw_loop", "lw_wide_loop", "lw_column_loop", "lw_watched_loop", "lw_wide_watched_loop")
EXPORTS = (*LOOPS, "lw_parallel_for", "lw_pool_work", "lw_pool_open", "lw_pool_close", "lw_pool_reset", "lw_pool_pause")

_PAUSES = {"x86": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
           "arm64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
           "": ("", "")}


def pool_text(processor: str, futex: int | None, yield_function: str, nap_function: str) -> str:
    """processor: `x86`, `arm64` or empty. futex, nap_function: see `sleep_text`. yield_function: `i32 ()`."""
    declaration, pause = _PAUSES[processor]
    return "\n".join((declaration, _STATE, sleep_text(futex, nap_function), _DRAIN, _PUBLISH,
                      _wait_text(pause, yield_function), _FOR, _WORTH, *map(_loop_text, LOOPS), _worker_text(pause), _CONTROL))


_STATE = f"""
@tickets = internal global [{MOST_RANGES} x i64] zeroinitializer, align 64
@done = internal global i64 0, align 64
@signal = internal global i32 0, align 64
@sleepers = internal global i32 0, align 64
@busy = internal global i32 0, align 64
@debt = internal global i64 0, align 64
@mode = internal global i32 0, align 64
@threads = internal global i64 1, align 8
@patience = internal global i64 0, align 8
@ranges = internal global i64 1, align 8
@others = internal global ptr null, align 8
@usual = internal global i32 0, align 4
@members = internal global i64 0, align 8
@core = internal global i32 -1, align 64
@body = internal global ptr null, align 64
@context = internal global ptr null
@count = internal global i64 0
@grain = internal global i64 0
declare void @lw_pool_start()
declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)
"""


_DRAIN = """
; Claim and run chunks of one generation until none is left: those of a thread's own range, then what is left of others.
define internal void @drain(i32 %generation, i64 %thread) nounwind {
entry:
  %ranges = load atomic i64, ptr @ranges monotonic, align 8
  br label %range
range:
  %turn = phi i64 [ 0, %entry ], [ %turn.next, %used ]
  %place = add i64 %thread, %turn
  %r = urem i64 %place, %ranges
  %ticket = getelementptr i64, ptr @tickets, i64 %r
  %own = icmp eq i64 %turn, 0
  br label %look
look:
  %seen = load atomic i64, ptr %ticket acquire, align 8
  %high = lshr i64 %seen, 32
  %of = trunc i64 %high to i32
  %current = icmp eq i32 %of, %generation
  br i1 %current, label %read, label %out
read:
  %body = load atomic ptr, ptr @body acquire, align 8
  %context = load atomic ptr, ptr @context acquire, align 8
  %n = load atomic i64, ptr @count acquire, align 8
  %grain = load atomic i64, ptr @grain acquire, align 8
  %next = and i64 %seen, 65535
  %low = lshr i64 %seen, 16
  %end = and i64 %low, 65535
  %left = icmp ult i64 %next, %end
  br i1 %left, label %claim, label %used
claim:
  %front = add i64 %seen, 1
  %back = sub i64 %seen, 65536
  %claimed = select i1 %own, i64 %front, i64 %back
  %pair = cmpxchg ptr %ticket, i64 %seen, i64 %claimed acq_rel acquire, align 8
  %mine = extractvalue { i64, i1 } %pair, 1
  br i1 %mine, label %run, label %look
run:
  %last = sub i64 %end, 1
  %k = select i1 %own, i64 %next, i64 %last
  call void @chunk(ptr %body, ptr %context, i64 %k, i64 %n, i64 %grain)
  %before = atomicrmw add ptr @done, i64 1 release, align 8
  br label %look
used:
  %turn.next = add i64 %turn, 1
  %more = icmp ult i64 %turn.next, %ranges
  br i1 %more, label %range, label %out
out:
  ret void
}

define internal void @chunk(ptr %body, ptr %context, i64 %k, i64 %n, i64 %grain) nounwind {
  %begin = mul i64 %k, %grain
  %rest = sub i64 %n, %begin
  %partial = icmp slt i64 %rest, %grain
  %length = select i1 %partial, i64 %rest, i64 %grain
  %end = add i64 %begin, %length
  call void %body(ptr %context, i64 %begin, i64 %end)
  ret void
}
"""

_PUBLISH = """
; Write the job, then open the tickets of the next generation, which is the answer.
define internal i32 @publish(ptr %body, ptr %context, i64 %n, i64 %grain, i64 %chunks) nounwind {
entry:
  %old = load atomic i32, ptr @signal monotonic, align 4
  %following = add i32 %old, 1
  %stop = icmp ugt i32 %following, -2
  %generation = select i1 %stop, i32 1, i32 %following
  %wide = zext i32 %generation to i64
  %opening = shl i64 %wide, 32
  %closed = or i64 %opening, 4294967295
  %ranges = load atomic i64, ptr @ranges monotonic, align 8
  br label %close
close:
  %c = phi i64 [ 0, %entry ], [ %c.next, %close ]
  %c.at = getelementptr i64, ptr @tickets, i64 %c
  %closing = atomicrmw xchg ptr %c.at, i64 %closed seq_cst, align 8
  %c.next = add i64 %c, 1
  %c.more = icmp ult i64 %c.next, %ranges
  br i1 %c.more, label %close, label %write
write:
  store atomic ptr %body, ptr @body release, align 8
  store atomic ptr %context, ptr @context release, align 8
  store atomic i64 %n, ptr @count release, align 8
  store atomic i64 %grain, ptr @grain release, align 8
  store atomic i64 0, ptr @done release, align 8
  br label %open
open:
  %o = phi i64 [ 0, %write ], [ %o.next, %open ]
  %next = phi i64 [ 0, %write ], [ %end, %open ]
  %o.next = add i64 %o, 1
  %share = mul i64 %o.next, %chunks
  %end = udiv i64 %share, %ranges
  %end.bits = shl i64 %end, 16
  %span = or i64 %end.bits, %next
  %ticket = or i64 %opening, %span
  %o.at = getelementptr i64, ptr @tickets, i64 %o
  store atomic i64 %ticket, ptr %o.at release, align 8
  %o.more = icmp ult i64 %o.next, %ranges
  br i1 %o.more, label %open, label %call
call:
  store atomic i32 %generation, ptr @signal seq_cst, align 4
  call void @wake()
  ret i32 %generation
}
"""


def _wait_text(pause: str, yield_function: str) -> str:
    return f"""
declare i32 @{yield_function}()
; Wait for the chunks that others claimed. `poll`, unless null, is asked for signals with a clock and `error` meanwhile.
define internal void @wait(i64 %chunks, ptr %poll, ptr %error) nounwind {{
entry:
  %clock = alloca [3 x i64], align 8
  store [3 x i64] [i64 1, i64 0, i64 0], ptr %clock, align 8
  %watched = icmp ne ptr %poll, null
  %patience.all = load atomic i64, ptr @patience monotonic, align 8
  %patience.callers = udiv i64 %patience.all, {CALLER_SHARE}
  br label %wait
wait:
  %spins = phi i64 [ 0, %entry ], [ %spins.next, %spin ], [ 0, %yield ], [ 0, %ask ]
  %finished = load atomic i64, ptr @done acquire, align 8
  %all = icmp eq i64 %finished, %chunks
  br i1 %all, label %out, label %patience
patience:
  %spins.next = add i64 %spins, 1
  %tired = icmp ugt i64 %spins, %patience.callers
  br i1 %tired, label %yield, label %spin
spin:
  {pause}
  br label %wait
yield:
  %yielded = call i32 @{yield_function}()
  br i1 %watched, label %ask, label %wait
ask:
  %trips = call i64 %poll(ptr %clock, ptr %error)
  br label %wait
out:
  ret void
}}
"""


_FOR = f"""
; How many threads a loop may have: all, unless the others' number, as a library's, is less than usual.
define internal i64 @allowed() nounwind {{
entry:
  %others = load atomic ptr, ptr @others monotonic, align 8
  %none = icmp eq ptr %others, null
  br i1 %none, label %all, label %ask
ask:
  %now = call i32 %others()
  %usual = load atomic i32, ptr @usual monotonic, align 4
  %fewer = icmp slt i32 %now, %usual
  br i1 %fewer, label %some, label %all
some:
  %count = sext i32 %now to i64
  ret i64 %count
all:
  %threads = load atomic i64, ptr @threads monotonic, align 8
  ret i64 %threads
}}

define void @lw_parallel_for(ptr %body, ptr %context, i64 %n, i64 %wanted) nounwind {{
  call void @share(ptr %body, ptr %context, i64 %n, i64 %wanted, ptr null, ptr null)
  ret void
}}

define internal void @share(ptr %body, ptr %context, i64 %n, i64 %wanted, ptr %poll, ptr %error) nounwind {{
entry:
  %whole = icmp sle i64 %n, %wanted
  br i1 %whole, label %single, label %many
single:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %alone, label %out
alone:
  call void %body(ptr %context, i64 0, i64 %n)
  br label %out
many:
  %any = icmp sgt i64 %n, 0
  br i1 %any, label %split, label %out
split:
  %last.index = sub i64 %n, 1
  %bound = lshr i64 %last.index, {MOST_CHUNKS_BITS}
  %least = add i64 %bound, 1
  %fine = icmp slt i64 %wanted, %least
  %grain = select i1 %fine, i64 %least, i64 %wanted
  %last.chunk = udiv i64 %last.index, %grain
  %chunks = add i64 %last.chunk, 1
  %one = icmp eq i64 %chunks, 1
  br i1 %one, label %serial, label %threads
threads:
  %mode = load atomic i32, ptr @mode acquire, align 4
  %unstarted = icmp eq i32 %mode, {UNSTARTED}
  br i1 %unstarted, label %start, label %started
start:
  call void @lw_pool_start()
  br label %started
started:
  %now = load atomic i32, ptr @mode acquire, align 4
  %parallel = icmp eq i32 %now, {PARALLEL}
  br i1 %parallel, label %ask, label %serial
ask:
  %members = call i64 @allowed()
  %several = icmp sgt i64 %members, 1
  br i1 %several, label %acquire, label %serial
acquire:
  %pair = cmpxchg ptr @busy, i32 0, i32 1 acquire monotonic, align 4
  %free = extractvalue {{ i32, i1 }} %pair, 1
  br i1 %free, label %publish, label %serial
publish:
  call void @settle()
  store atomic i64 %members, ptr @members monotonic, align 8
  %generation = call i32 @publish(ptr %body, ptr %context, i64 %n, i64 %grain, i64 %chunks)
  call void @drain(i32 %generation, i64 0)
  call void @wait(i64 %chunks, ptr %poll, ptr %error)
  store atomic i32 0, ptr @busy release, align 4
  br label %out
serial:
  %k = phi i64 [ 0, %split ], [ 0, %started ], [ 0, %ask ], [ 0, %acquire ], [ %k.next, %serial ]
  call void @chunk(ptr %body, ptr %context, i64 %k, i64 %n, i64 %grain)
  %k.next = add i64 %k, 1
  %more = icmp ult i64 %k.next, %chunks
  br i1 %more, label %serial, label %out
out:
  ret void
}}
"""


_WORTH = f"""
; Is so much work worth threads, and do these have no loop? Less than what pays for waking them is where they are awake, or have
; been missed for long.
define internal i1 @worth(i64 %work) nounwind {{
entry:
  %little = icmp slt i64 %work, {THRESHOLD}
  %busy = load atomic i32, ptr @busy monotonic, align 4
  %taken = icmp ne i32 %busy, 0
  %neither = or i1 %little, %taken
  br i1 %neither, label %no, label %some
some:
  %much = icmp sge i64 %work, {WAKING}
  br i1 %much, label %yes, label %ask
ask:
  %sleepers = load atomic i32, ptr @sleepers monotonic, align 4
  %none = icmp eq i32 %sleepers, 0
  %mode = load atomic i32, ptr @mode acquire, align 4
  %there = icmp eq i32 %mode, {PARALLEL}
  %awake = and i1 %none, %there
  br i1 %awake, label %yes, label %owe
owe:
  %before = load atomic i64, ptr @debt monotonic, align 8
  %debt = add i64 %before, %work
  %long = icmp sge i64 %debt, {DEBT}
  %left = select i1 %long, i64 0, i64 %debt
  store atomic i64 %left, ptr @debt monotonic, align 8
  br i1 %long, label %yes, label %no
yes:
  ret i1 true
no:
  ret i1 false
}}
"""


def _loop_text(name: str) -> str:
    """A whole loop of n indices, `each` units of work: here, or, where there are threads, in chunks of as many indices each,
    a multiple of `together`, more than half of `least`. A wide one has a chunk for each thread, so these are there first; so
    has one of columns, if each chunk has at least `least`: else it is one, whose own loops have the threads. One that is
    watched may take long: signals are asked for by `wait`."""
    more, of_columns = ", ptr %poll, ptr %error" if "watched" in name else "", "column" in name
    is_wide = of_columns or "wide" in name
    fewest = """
  %wanted = mul i64 %most, %least
  %few = icmp slt i64 %n, %wanted
  br i1 %few, label %whole, label %enough.columns
enough.columns:""" if of_columns else ""
    most = "load atomic i64, ptr @threads monotonic, align 8" if is_wide else f"add i64 {MOST_CHUNKS}, 0"
    start = f"""
  %unstarted = icmp eq i32 %mode, {UNSTARTED}
  br i1 %unstarted, label %start, label %started
start:
  call void @lw_pool_start()
  br label %started
started:""" if is_wide else ""
    return f"""
define void @{name}(ptr %body, ptr %context, i64 %n, i64 %each, i64 %least, i64 %together{more}) nounwind {{
entry:
  %none = icmp slt i64 %each, 1
  %units = select i1 %none, i64 1, i64 %each
  %work = mul i64 %n, %units
  %mode = load atomic i32, ptr @mode acquire, align 4
  %shared = icmp ne i32 %mode, {SERIAL}
  br i1 %shared, label %ask, label %whole
ask:
  %enough = call i1 @worth(i64 %work)
  br i1 %enough, label %chunks, label %whole
whole:
  call void %body(ptr %context, i64 0, i64 %n)
  ret void
chunks:{start}
  %light = udiv i64 {CHUNK}, %units
  %more = add i64 %light, 1
  %most = {most}{fewest}
  %past = add i64 %n, %most
  %before = sub i64 %past, 1
  %share = udiv i64 %before, %most
  %long = call i64 @llvm.umax.i64(i64 %more, i64 %share)
  %longer = call i64 @llvm.umax.i64(i64 %long, i64 %least)
  %begun = add i64 %n, %longer
  %ends = sub i64 %begun, 1
  %count = udiv i64 %ends, %longer
  %full = add i64 %n, %count
  %some = sub i64 %full, 1
  %even = udiv i64 %some, %count
  %last = sub i64 %together, 1
  %beyond = add i64 %even, %last
  %rest = urem i64 %beyond, %together
  %grain = sub i64 %beyond, %rest
  call void @share(ptr %body, ptr %context, i64 %n, i64 %grain{more or ", ptr null, ptr null"})
  ret void
}}
"""


def _worker_text(pause: str) -> str:
    return f"""
; So many pauses, whose time is measured: they last from 10 to 150 cycles.
define void @lw_pool_pause(i64 %count) nounwind {{
entry:
  br label %again
again:
  %k = phi i64 [ 0, %entry ], [ %k.next, %again ]
  {pause}
  %k.next = add i64 %k, 1
  %more = icmp ult i64 %k.next, %count
  br i1 %more, label %again, label %out
out:
  ret void
}}

define void @lw_pool_work(i64 %thread) nounwind {{
entry:
  br label %idle
idle:
  %last = phi i32 [ 0, %entry ], [ %generation, %work ], [ %generation, %share ]
  br label %spin
spin:
  %spins = phi i64 [ 0, %idle ], [ %spins.next, %again ], [ 0, %asleep ]
  %generation = load atomic i32, ptr @signal acquire, align 4
  %new = icmp ne i32 %generation, %last
  br i1 %new, label %called, label %patience
patience:
  %spins.next = add i64 %spins, 1
  %most = load atomic i64, ptr @patience monotonic, align 8
  %tired = icmp ugt i64 %spins, %most
  br i1 %tired, label %asleep, label %again
again:
  {pause}
  br label %spin
asleep:
  call void @sleep(i32 %last)
  br label %spin
called:
  %stop = icmp eq i32 %generation, -1
  br i1 %stop, label %out, label %work
work:
  %members = load atomic i64, ptr @members monotonic, align 8
  %member = icmp slt i64 %thread, %members
  br i1 %member, label %share, label %idle
share:
  call void @apart()
  call void @drain(i32 %generation, i64 %thread)
  br label %idle
out:
  ret void
}}
"""


_CONTROL = f"""
; Serial from now on: wait for the loop that runs, keep others out, send the workers home.
define void @lw_pool_close() nounwind {{
entry:
  store atomic i32 {SERIAL}, ptr @mode seq_cst, align 4
  br label %acquire
acquire:
  %pair = cmpxchg ptr @busy, i32 0, i32 1 acquire monotonic, align 4
  %free = extractvalue {{ i32, i1 }} %pair, 1
  br i1 %free, label %stop, label %acquire
stop:
  store atomic i32 -1, ptr @signal seq_cst, align 4
  call void @wake()
  ret void
}}

; The workers are there (or cannot be); so many threads with the caller's. A worker pauses so often before it sleeps. `others`,
; if not null, tells how many threads a library may have: where these are fewer than usual, so many threads have a loop.
define void @lw_pool_open(i32 %mode, i64 %threads, i64 %patience, ptr %others, i32 %usual) nounwind {{
  store atomic i32 %usual, ptr @usual monotonic, align 4
  store atomic ptr %others, ptr @others monotonic, align 8
  store atomic i64 %threads, ptr @threads monotonic, align 8
  store atomic i64 %patience, ptr @patience monotonic, align 8
  %ranges = call i64 @llvm.umin.i64(i64 %threads, i64 {MOST_RANGES})
  store atomic i64 %ranges, ptr @ranges monotonic, align 8
  store atomic i32 %mode, ptr @mode seq_cst, align 4
  ret void
}}

; As new, when no worker lives.
define void @lw_pool_reset() nounwind {{
  store [{MOST_RANGES} x i64] zeroinitializer, ptr @tickets, align 64
  store atomic i32 0, ptr @signal seq_cst, align 4
  store atomic i32 0, ptr @sleepers seq_cst, align 4
  store atomic i64 0, ptr @debt monotonic, align 8
  store atomic i32 {UNSTARTED}, ptr @mode seq_cst, align 4
  store atomic i32 0, ptr @busy seq_cst, align 4
  ret void
}}
"""
