//! The timeline as a trace that <https://ui.perfetto.dev> opens: a process for each worker, a row for each thread, a
//! slice for each moment, and in it one for each part. Within a moment nobody knows the order: parts follow each
//! other as they are listed.

use prost::Message;
use serde_json::{Value, json};

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

impl Report {
    /// The timeline as a file of Perfetto's own format.
    pub fn to_trace(&self) -> Vec<u8> {
        let mut packets = Vec::new();
        for (pid, worker) in (1..).zip(&self.ledger().workers) {
            let process = track(pid, 0);
            packets.push(described(
                process,
                None,
                Some(process_of(pid, self, worker)),
                None,
            ));
            for (tid, thread) in (1..).zip(&worker.threads) {
                let descriptor = ThreadDescriptor {
                    pid: Some(pid),
                    tid: Some(thread_id(pid, tid)),
                    thread_name: Some(text::plain(&thread.name)),
                };
                packets.push(described(
                    track(pid, tid),
                    Some(process),
                    None,
                    Some(descriptor),
                ));
                for slice in slices(self.ledger(), thread) {
                    push(&mut packets, track(pid, tid), slice);
                }
            }
        }
        Trace { packet: packets }.encode_to_vec()
    }

    /// The timeline as JSON of Chrome's trace events, which Perfetto opens as well. Times are in microseconds.
    pub fn to_trace_json(&self) -> String {
        let mut events = Vec::new();
        for (pid, worker) in (1..).zip(&self.ledger().workers) {
            let name = process_of(pid, self, worker).process_name;
            events.push(
                json!({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}),
            );
            for (tid, thread) in (1..).zip(&worker.threads) {
                let tid = thread_id(pid, tid);
                events.push(json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": text::plain(&thread.name)}}));
                for slice in slices(self.ledger(), thread) {
                    push_json(&mut events, pid, tid, slice);
                }
            }
        }
        json!({"displayTimeUnit": "ms", "traceEvents": events}).to_string()
    }
}

/// The same number nowhere else in the trace.
fn track(pid: i32, tid: i32) -> u64 {
    (pid as u64) << 32 | tid as u64
}

/// Threads of two processes have numbers of their own, as a system's have.
fn thread_id(pid: i32, tid: i32) -> i32 {
    pid * 10_000 + tid
}

fn process_of(pid: i32, report: &Report, worker: &WorkerEntry) -> ProcessDescriptor {
    let name = format!("{} on {}", report.program, worker.name);
    ProcessDescriptor {
        pid: Some(pid),
        process_name: Some(text::plain(&name)),
    }
}

/// The slices of a thread, in order: each ends before the next begins, and holds those within.
fn slices(ledger: &Ledger, thread: &ThreadEntry) -> Vec<Slice> {
    let mut free_ns = 0;
    let mut slices = Vec::new();
    for moment in moments(thread) {
        let slice = of_moment(ledger, &moment, free_ns);
        free_ns = slice.end_ns;
        slices.push(slice);
    }
    slices
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

fn push_json(events: &mut Vec<Value>, pid: i32, tid: i32, slice: Slice) {
    let microseconds = |ns: u64| ns as f64 / 1e3;
    events.push(json!({
        "ph": "X", "name": slice.name, "cat": slice.category, "pid": pid, "tid": tid,
        "ts": microseconds(slice.begin_ns), "dur": microseconds(slice.end_ns - slice.begin_ns),
        "args": slice.tasks.map_or(json!({}), |tasks| json!({"tasks": tasks})),
    }));
    for part in slice.within {
        push_json(events, pid, tid, part);
    }
}
