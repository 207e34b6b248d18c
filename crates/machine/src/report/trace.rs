//! The timeline as a trace that <https://ui.perfetto.dev> opens: a process for each worker, a row for each thread, a
//! slice for each moment, and in it one for each part. Within a moment nobody knows the order: parts follow each
//! other as they are listed.

use prost::Message;
use serde::Serialize;

use super::perfetto::{
    DebugAnnotation, ProcessDescriptor, SliceEdge, ThreadDescriptor, Trace, TracePacket,
    TrackDescriptor, TrackEvent,
};
use super::threads::moments;
use super::{Report, text};
use crate::ledger::{Ledger, Moment, ThreadEntry, WorkerEntry};

/// What a moment's slice is called where no stage took most of it.
const WAITING: &str = "no kernel";

/// A piece of a thread's row. Times are in nanoseconds since the job's begin.
struct Slice {
    name: String,
    category: &'static str,
    begin_ns: u64,
    end_ns: u64,
    /// Tasks that ended in it, where it is a moment.
    tasks: Option<u64>,
    within: Vec<Slice>,
}

/// One of Chrome's trace events. Times are in microseconds.
#[derive(Serialize)]
struct Event<'a> {
    /// "X" for a slice, "M" for the name of a process or a thread.
    ph: &'a str,
    name: &'a str,
    pid: i32,
    tid: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    args: Arguments<'a>,
}

#[derive(Default, Serialize)]
struct Arguments<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tasks: Option<u64>,
}

impl Report {
    /// The timeline as a file of Perfetto's own format.
    pub fn to_trace(&self) -> Vec<u8> {
        Report::trace_of(std::slice::from_ref(self))
    }

    /// The timelines of several jobs, one after another, as one such file.
    pub fn trace_of(reports: &[Report]) -> Vec<u8> {
        let mut file = Vec::new();
        // A file of files that follow each other is one of all their packets, so no more than a slice is held twice.
        let mut write = |packet| Trace { packet }.encode_raw(&mut file);
        for (pid, after_s, report, worker) in processes(reports) {
            let process = ProcessDescriptor {
                pid: Some(pid),
                process_name: Some(process_name(report, worker)),
            };
            write(vec![described(track(pid, 0), None, Some(process), None)]);
            for (tid, thread) in (1..).zip(&worker.threads) {
                let name = Some(text::plain(&thread.name));
                let descriptor = ThreadDescriptor {
                    pid: Some(pid),
                    tid: Some(thread_id(pid, tid)),
                    thread_name: name,
                };
                write(vec![described(
                    track(pid, tid),
                    Some(track(pid, 0)),
                    None,
                    Some(descriptor),
                )]);
                for slice in slices(report.ledger(), thread, after_s) {
                    let mut packets = Vec::new();
                    push(&mut packets, track(pid, tid), slice);
                    write(packets);
                }
            }
        }
        file
    }

    /// The timeline as JSON of Chrome's trace events, which Perfetto opens as well.
    pub fn to_trace_json(&self) -> String {
        Report::trace_json_of(std::slice::from_ref(self))
    }

    /// The timelines of several jobs, one after another, as one such text.
    pub fn trace_json_of(reports: &[Report]) -> String {
        let mut events = String::new();
        for (pid, after_s, report, worker) in processes(reports) {
            named(
                &mut events,
                "process_name",
                pid,
                0,
                &process_name(report, worker),
            );
            for (tid, thread) in (1..).zip(&worker.threads) {
                let tid = thread_id(pid, tid);
                named(
                    &mut events,
                    "thread_name",
                    pid,
                    tid,
                    &text::plain(&thread.name),
                );
                for slice in slices(report.ledger(), thread, after_s) {
                    push_json(&mut events, pid, tid, &slice);
                }
            }
        }
        format!("{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[{events}]}}")
    }
}

/// Each worker of each job: its number in the trace, when its job begins there in seconds, and whose it is.
fn processes(reports: &[Report]) -> impl Iterator<Item = (i32, f64, &Report, &WorkerEntry)> {
    let begins = reports.iter().scan(0.0, |end_s, report| {
        let begin_s = *end_s;
        *end_s += report.ledger().wall_s.max(0.0);
        Some((begin_s, report))
    });
    let workers = begins.flat_map(|(begin_s, report)| {
        let workers = report.ledger().workers.iter();
        workers.map(move |worker| (begin_s, report, worker))
    });
    (1..)
        .zip(workers)
        .map(|(pid, (begin_s, report, worker))| (pid, begin_s, report, worker))
}

/// The same number nowhere else in the trace.
fn track(pid: i32, tid: i32) -> u64 {
    (pid as u64) << 32 | tid as u64
}

/// Threads of two processes have numbers of their own, as a system's have.
fn thread_id(pid: i32, tid: i32) -> i32 {
    pid * 10_000 + tid
}

fn process_name(report: &Report, worker: &WorkerEntry) -> String {
    text::plain(&format!("{} on {}", report.program, worker.name))
}

/// The slices of a thread, in order: each ends before the next begins, and holds those within.
fn slices(ledger: &Ledger, thread: &ThreadEntry, after_s: f64) -> impl Iterator<Item = Slice> {
    let mut free_ns = 0;
    moments(thread).into_iter().map(move |mut moment| {
        moment.begin_s += after_s;
        let slice = of_moment(ledger, &moment, free_ns);
        free_ns = slice.end_ns;
        slice
    })
}

/// Begins no earlier than the one before has ended: both were rounded.
fn of_moment(ledger: &Ledger, moment: &Moment, free_ns: u64) -> Slice {
    let begin_ns = nanoseconds(moment.begin_s).max(free_ns);
    let (mut within, mut at_s) = (Vec::new(), 0.0);
    for (name, part_s) in moment
        .parts
        .named()
        .into_iter()
        .filter(|(_, seconds)| *seconds > 0.0)
    {
        let part_begin_ns = begin_ns + nanoseconds(at_s);
        at_s += part_s;
        let end_ns = begin_ns + nanoseconds(at_s);
        within.push(Slice {
            name: name.replace('_', " "),
            category: "part",
            begin_ns: part_begin_ns,
            end_ns,
            tasks: None,
            within: Vec::new(),
        });
    }
    let stage = moment
        .stage
        .and_then(|index| ledger.stages.get(index as usize));
    let name = stage.map_or(WAITING.into(), |stage| text::plain(&stage.name));
    Slice {
        name,
        category: "moment",
        begin_ns,
        end_ns: begin_ns + nanoseconds(at_s),
        tasks: Some(moment.tasks),
        within,
    }
}

/// A time that is not finite, or before the begin, is the begin.
fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

fn described(
    uuid: u64,
    parent_uuid: Option<u64>,
    process: Option<ProcessDescriptor>,
    thread: Option<ThreadDescriptor>,
) -> TracePacket {
    let descriptor = TrackDescriptor {
        uuid: Some(uuid),
        parent_uuid,
        process,
        thread,
    };
    TracePacket {
        trusted_packet_sequence_id: Some(1),
        track_descriptor: Some(descriptor),
        ..TracePacket::default()
    }
}

fn push(packets: &mut Vec<TracePacket>, track: u64, slice: Slice) {
    let tasks = slice.tasks.map(|tasks| DebugAnnotation {
        uint_value: Some(tasks),
        name: Some("tasks".into()),
    });
    let begin = TrackEvent {
        debug_annotations: tasks.into_iter().collect(),
        r#type: Some(SliceEdge::SliceBegin as i32),
        track_uuid: Some(track),
        categories: vec![slice.category.into()],
        name: Some(slice.name),
    };
    let end = TrackEvent {
        r#type: Some(SliceEdge::SliceEnd as i32),
        track_uuid: Some(track),
        ..TrackEvent::default()
    };
    packets.push(at(slice.begin_ns, begin));
    for part in slice.within {
        push(packets, track, part);
    }
    packets.push(at(slice.end_ns, end));
}

fn at(timestamp_ns: u64, event: TrackEvent) -> TracePacket {
    TracePacket {
        timestamp: Some(timestamp_ns),
        trusted_packet_sequence_id: Some(1),
        track_event: Some(event),
        ..TracePacket::default()
    }
}

fn push_json(events: &mut String, pid: i32, tid: i32, slice: &Slice) {
    let microseconds = |ns: u64| Some(ns as f64 / 1e3);
    let (ts, dur) = (
        microseconds(slice.begin_ns),
        microseconds(slice.end_ns - slice.begin_ns),
    );
    let args = Arguments {
        tasks: slice.tasks,
        name: None,
    };
    write_json(
        events,
        &Event {
            ph: "X",
            name: &slice.name,
            pid,
            tid,
            cat: Some(slice.category),
            ts,
            dur,
            args,
        },
    );
    for part in &slice.within {
        push_json(events, pid, tid, part);
    }
}

fn named(events: &mut String, what: &str, pid: i32, tid: i32, name: &str) {
    let args = Arguments {
        name: Some(name),
        tasks: None,
    };
    write_json(
        events,
        &Event {
            ph: "M",
            name: what,
            pid,
            tid,
            cat: None,
            ts: None,
            dur: None,
            args,
        },
    );
}

fn write_json(events: &mut String, event: &Event) {
    if !events.is_empty() {
        events.push_str(",\n");
    }
    events.push_str(&serde_json::to_string(event).expect("an event has no keys but strings"));
}
