//! What workers and the controller say to each other, and shards that move.

use super::super::control::{CostedFrame, OrderNews};
use super::super::worker::CostedWorker;
use super::super::{Change, Nanos};
use super::{
    CONTROLLER_TICK, Event, HANGS, Note, Orders, REPORTS, Run, TICK, id, number, shard_id,
};
use brambling_program::ShardId;
use brambling_protocol::frame::{Body, Frame, ShardRange};
use brambling_protocol::{EntryRange, PartitionMap, Version, WorkerId};
use std::collections::VecDeque;

impl Run<'_> {
    // ---- frames

    /// A worker says something to the controller.
    pub(super) fn say(&mut self, now: Nanos, from: u32, bytes: CostedFrame) {
        let ns = self.scenario.costs.hint_out_ns + self.scenario.costs.machine.write_ns;
        let at = now + ns as Nanos;
        let (near, far) = (from as usize, self.controller());
        let come = self.hosts.send(at, near, far, bytes.len() as u64);
        self.agenda.note(come, Event::Says { from, bytes });
    }

    /// Something has come to the controller.
    pub(super) fn on_said(&mut self, now: Nanos, from: u32, bytes: &CostedFrame) {
        let (frame, _) = Frame::decode(bytes).expect("a worker sends whole frames");
        match frame.body {
            Body::Message(_) => self.control.on_message(now, id(from), bytes),
            _ => self.control.on_frame(now, id(from), bytes),
        }
        self.pass_on(now);
    }

    /// What the controller has written goes its way.
    pub(super) fn pass_on(&mut self, now: Nanos) {
        let (frames, news) = self.control.take();
        for frame in frames {
            let (to, bytes) = (number(frame.to), frame.bytes);
            self.note_published(frame.at, to, &bytes);
            self.agenda.note(frame.at, Event::Written { to, bytes });
        }
        for news in news {
            match news {
                OrderNews::Moved => {
                    self.outcome.moves += 1;
                    let orders = self.orders.front_mut().expect("a move that was ordered");
                    orders.under_way -= 1;
                    self.agenda.note(now, Event::Orders);
                }
                OrderNews::Over => {}
                OrderNews::Saved(manifest) => self.on_all_saved(now, manifest),
            }
        }
    }

    /// A version of one shard's entry is told to somebody who is not told the whole map: to those of its move first.
    fn note_published(&mut self, at: Nanos, to: u32, bytes: &[u8]) {
        let (frame, _) = Frame::decode(bytes).expect("the controller sends whole frames");
        let Body::MapUpdate(update) = frame.body else {
            return;
        };
        if let [entry] = update.entries[..]
            && entry.end == entry.first + 1
            && entry.entry.version > 1
            && self.workers[to as usize].knows_map
        {
            let about = (entry.first, entry.entry.version);
            let workers = self.workers.iter().filter(|it| it.knows_map).count() as u32;
            self.published
                .entry(about)
                .or_insert((at, workers, workers));
        }
    }

    /// A worker has taken in what the controller says.
    pub(super) fn on_controller(&mut self, now: Nanos, to: u32, bytes: &[u8]) {
        let known = self.workers.len() as u32;
        let worker = &mut self.workers[to as usize];
        let heard = worker.on_controller(bytes);
        if !worker.ack_is_due {
            worker.ack_is_due = true;
            self.agenda.note(now + TICK, Event::Tick { worker: to });
        }
        for answer in heard.answers {
            self.say(now, to, answer);
        }
        for entry in heard.updates {
            self.on_entry(now, to, &entry);
        }
        if let Some(ask) = heard.cut {
            self.on_cut(now, to, &ask);
        }
        self.hand_over(now, to, heard.handed_on);
        if joined(bytes).is_some_and(|joined| number(joined) == known - 1) && to != known - 1 {
            self.send(now, to, known - 1, Note::Greeting);
        }
        let waits = self.orders.front().and_then(|orders| orders.waits_for);
        if waits == Some(to) && self.workers[to as usize].knows_map {
            self.agenda.note(now, Event::Orders);
        }
    }

    /// A worker has taken in what another hands on.
    pub(super) fn on_handed(&mut self, now: Nanos, to: u32, bytes: &[u8]) {
        let heard = self.workers[to as usize].on_handed(bytes);
        for entry in heard.updates {
            self.on_entry(now, to, &entry);
        }
        self.hand_over(now, to, heard.handed_on);
    }

    /// The helper of a worker hands on what the controller says.
    fn hand_over(&mut self, mut at: Nanos, from: u32, frames: Vec<(WorkerId, CostedFrame)>) {
        let ns = self.scenario.costs.hint_out_ns + self.scenario.costs.machine.write_ns;
        for (to, bytes) in frames {
            at += ns as Nanos;
            self.outcome.frames += 1;
            let (near, far) = (from as usize, number(to) as usize);
            let come = self.hosts.send(at, near, far, bytes.len() as u64);
            let to = number(to);
            self.agenda.note(come, Event::Handed { to, bytes });
        }
        self.busy(from, at);
    }

    /// The time passes for the controller, until nothing moves any more and all have been told.
    pub(super) fn on_controller_tick(&mut self, now: Nanos) {
        let is_over = self.control.machine().is_over();
        self.control.tick(now);
        self.pass_on(now);
        if !is_over {
            self.agenda
                .note(now + CONTROLLER_TICK, Event::ControllerTick);
        }
    }

    /// A worker learns who holds shards.
    fn on_entry(&mut self, now: Nanos, at: u32, entry: &EntryRange) {
        for shard in entry.first..entry.end {
            self.note_heard(now, at, (shard, entry.entry.version));
        }
        let (shard, version) = (entry.first, entry.entry.version);
        let Some(place) = self.places.get_mut(shard as usize) else {
            return;
        };
        let to = number(entry.entry.owner);
        let is_one = entry.end == shard + 1 && version > 1;
        if is_one && place.is_here && place.worker == at && to != at {
            // Flagged: no turn of it begins here any more.
            place.leaves = Some((to, version));
            if !self.workers[at as usize].runs(shard) {
                self.depart(now, shard);
            }
        }
    }

    /// A worker has heard of a version. Who has joined since it was published was told the whole map.
    fn note_heard(&mut self, now: Nanos, at: u32, about: (u32, Version)) {
        let Some((since, workers, missing)) = self.published.get_mut(&about) else {
            return;
        };
        *missing -= u32::from(at < *workers);
        if *missing == 0 {
            self.updates.push(now - *since);
            self.published.remove(&about);
        }
    }

    // ---- shards that move

    /// No task of a shard runs any more: it leaves.
    pub(super) fn depart(&mut self, now: Nanos, shard: u32) {
        let place = &mut self.places[shard as usize];
        let (to, _) = place.leaves.expect("it was flagged");
        place.is_here = false;
        let from = place.worker;
        self.workers[from as usize].let_go(shard);
        let bytes = self.scenario.work.shard_bytes;
        let (near, far) = (from as usize, to as usize);
        let come = self.hosts.send_bulk(now, near, far, bytes);
        self.agenda.note(come, Event::Settles { shard, to });
    }

    /// A shard has come: it goes on where it stands.
    pub(super) fn on_settles(&mut self, now: Nanos, shard: u32, to: u32) {
        let iteration = self.iteration;
        let place = &mut self.places[shard as usize];
        let (_, version) = place.leaves.take().expect("it was sent");
        (place.worker, place.is_here) = (to, true);
        let has_to_run = place.done == iteration && !self.is_over;
        let worker = &mut self.workers[to as usize];
        let core = worker.take_in(shard);
        let has_begun = worker.begun == iteration + 1;
        let is_member = self.place_in_tree[to as usize].is_some();
        if has_to_run && (has_begun || !is_member) {
            // Who has no model yet gets it with the shard, or forwarded.
            worker.ready[core].push_back(shard);
            worker.ready_since = worker.ready_since.min(now);
            self.call(now, to, core);
        }
        let arrived = self.workers[to as usize].arrived(shard_id(shard), version);
        self.say(now, to, arrived);
        if self.is_over {
            self.tell_finished(now, to, &[shard]);
        }
    }

    // ---- changes

    /// The changes of the iteration that begins.
    pub(super) fn start_changes(&mut self, now: Nanos) {
        let changes = self.scenario.changes.iter().copied();
        for change in changes.collect::<Vec<_>>() {
            match change {
                Change::Drain { at, worker } if at == self.iteration => self.drain(now, worker),
                Change::Join { at } if at == self.iteration => self.join(now),
                _ => {}
            }
        }
    }

    fn drain(&mut self, now: Nanos, worker: u32) {
        assert_ne!(worker, self.root(), "the model stays where it is");
        let mut leaving: Vec<u32> = self.workers[worker as usize].resident().collect();
        leaving.sort_unstable();
        let others = self.tree.iter().copied().filter(|other| *other != worker);
        let mut others: Vec<u32> = others.collect();
        others.sort_unstable();
        let left = leaving.into_iter().zip(others.into_iter().cycle());
        self.order_all(now, None, left.collect());
    }

    fn join(&mut self, now: Nanos) {
        let work = self.scenario.work;
        let newcomer = self.workers.len() as u32;
        let key = self.control.key();
        let map = PartitionMap::new([work.shards(), 1]);
        let worker = CostedWorker::new(key, work.cores, map, false);
        self.workers.push(worker);
        self.place_in_tree.push(None);
        self.control.register(now, id(newcomer), work.cores);
        self.pass_on(now);
        self.agenda
            .note(now + REPORTS, Event::Report { worker: newcomer });
        self.order_all(now, Some(newcomer), VecDeque::new());
    }

    fn order_all(&mut self, now: Nanos, waits_for: Option<u32>, left: VecDeque<(u32, u32)>) {
        self.quiet_since = None;
        self.orders.push_back(Orders {
            began: None,
            waits_for,
            left,
            under_way: 0,
        });
        self.agenda.note(now, Event::Orders);
    }

    /// Orders as many moves of the first change as may be under way.
    pub(super) fn give_orders(&mut self, now: Nanos) {
        let Some(orders) = self.orders.front() else {
            return;
        };
        if let Some(newcomer) = orders.waits_for {
            if !self.workers[newcomer as usize].knows_map {
                return;
            }
            let left = self.share_for(newcomer);
            let orders = self.orders.front_mut().expect("just seen");
            (orders.waits_for, orders.left) = (None, left);
        }
        let orders = self.orders.front_mut().expect("just seen");
        let began = *orders.began.get_or_insert(now);
        loop {
            let orders = self.orders.front_mut().expect("just seen");
            let may = orders.under_way < self.scenario.moves_at_once;
            let Some((shard, to)) = may.then(|| orders.left.pop_front()).flatten() else {
                break;
            };
            orders.under_way += 1;
            let bytes = self.scenario.work.shard_bytes;
            self.control.order(now, shard_id(shard), id(to), bytes);
            self.pass_on(now);
        }
        let orders = self.orders.front().expect("just seen");
        if orders.left.is_empty() && orders.under_way == 0 {
            let took = (now - began) as f64 / 1e6;
            self.outcome.change_ms.push(took);
            self.orders.pop_front();
            self.calm_at = now + 2 * TICK;
            self.agenda.note(now, Event::Orders);
        }
    }

    /// What a newcomer is to get: as many as the others keep, one by one from whoever has most.
    fn share_for(&self, newcomer: u32) -> VecDeque<(u32, u32)> {
        let here = self.workers.iter().map(|it| it.resident().collect());
        let mut here: Vec<Vec<u32>> = here.collect();
        let holders = here.iter().filter(|it| !it.is_empty()).count();
        let share = self.places.len() / (holders + 1);
        let mut left = VecDeque::new();
        for _ in 0..share {
            let fullest = (0..here.len()).max_by_key(|it| (here[*it].len(), usize::MAX - it));
            let fullest = fullest.expect("there are workers");
            let shard = here[fullest].pop().expect("the fullest has some");
            left.push_back((shard, newcomer));
        }
        left
    }

    // ---- reports and the end

    pub(super) fn on_report(&mut self, now: Nanos, worker: u32) {
        if self.workers[worker as usize].is_over {
            return;
        }
        assert!(now - self.decided_at < HANGS, "the job hangs");
        let tasks = u64::from(self.iteration) * self.scenario.work.tasks_per_turn();
        let report = self.workers[worker as usize].report(tasks);
        self.say(now, worker, report);
        self.agenda.note(now + REPORTS, Event::Report { worker });
    }

    /// Adds up the controller's messages over iterations that begin and end without a change under way.
    pub(super) fn note_quiet(&mut self, now: Nanos) {
        let messages = self.control.load().messages();
        if let Some((since, before)) = self.quiet_since {
            self.quiet.0 += now - since;
            self.quiet.1 += messages - before;
        }
        let is_quiet = self.orders.is_empty() && !self.is_over && now >= self.calm_at;
        self.quiet_since = is_quiet.then_some((now, messages));
    }

    /// A worker knows that the program has ended: each of its threads says so of its shards.
    pub(super) fn finish(&mut self, now: Nanos, worker: u32) {
        let homes = self.workers[worker as usize].homes.clone();
        for home in homes.iter().filter(|home| !home.is_empty()) {
            self.tell_finished(now, worker, home);
        }
    }

    fn tell_finished(&mut self, now: Nanos, worker: u32, shards: &[u32]) {
        let range = |shard: &u32| {
            let ShardId { group, index } = shard_id(*shard);
            ShardRange {
                group,
                first: index,
                end: index + 1,
            }
        };
        let mut ranges: Vec<ShardRange> = shards.iter().map(range).collect();
        if worker == self.root() && std::mem::take(&mut self.model_is_left) {
            ranges.push(ShardRange {
                group: super::GROUPS[1],
                first: 0,
                end: 1,
            });
        }
        let bytes = self.workers[worker as usize].finished(&ranges);
        self.say(now, worker, bytes);
    }
}

/// Of whom the controller says that there is such a worker.
fn joined(bytes: &[u8]) -> Option<WorkerId> {
    match Frame::decode(bytes).expect("a whole frame").0.body {
        Body::Joined(joined) => Some(joined.worker),
        _ => None,
    }
}
