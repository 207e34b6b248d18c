//! The rules, as data.

/// Something that is kept out of the places where it does harm.
pub struct Rule {
    /// Names the rule in messages.
    pub name: &'static str,
    /// Token sequences, tokens divided by spaces. `*Map` is any word that ends in `Map`.
    pub patterns: &'static [&'static str],
    /// Path prefixes that are looked at; empty for all.
    pub inside: &'static [&'static str],
    /// Path prefixes that may.
    pub except: &'static [&'static str],
    /// Whether tests may as well.
    pub except_tests: bool,
    /// A comment on the line, or on the one before, that argues for an exception.
    pub argued_by: Option<&'static str>,
    /// What to do instead.
    pub way_out: &'static str,
}

const EXECUTOR: &str = "crates/worker/src/executor";
const TRANSPORT: &str = "crates/exchange/src/transport";

/// All rules except the one on `unsafe`, which has its own table.
pub const RULES: &[Rule] = &[
    Rule {
        name: "clock",
        patterns: &[
            "Instant :: now",
            "SystemTime",
            "clock_gettime",
            "_rdtsc",
            "UNIX_EPOCH",
        ],
        inside: &[],
        except: &[
            EXECUTOR,
            TRANSPORT,
            // Leases are held for a time, and probes end in time: they talk to a server, and no seed reproduces that.
            "crates/storage/src/objects/lease",
            "crates/storage/src/objects/probe",
            "crates/engine",
            "crates/machine",
            "crates/cli",
            "bench",
            "examples",
        ],
        except_tests: true,
        argued_by: None,
        way_out: "take the time as an argument: protocols have no clock, or no seed reproduces them",
    },
    Rule {
        name: "randomness",
        patterns: &[
            "rand ::",
            "thread_rng",
            "OsRng",
            "RandomState",
            "from_entropy",
            "getrandom",
            "fastrand",
        ],
        inside: &[],
        except: &[
            // Nonces and tokens: what nobody may guess.
            "crates/engine/src/cluster/wire",
        ],
        except_tests: false,
        argued_by: None,
        way_out: "use the counter-based generator (`ctx.rng()`), or take a seed as an argument",
    },
    Rule {
        name: "thread",
        patterns: &[
            "thread :: spawn",
            "thread :: Builder",
            "thread :: scope",
            "rayon ::",
            "tokio :: spawn",
        ],
        inside: &[],
        except: &[
            EXECUTOR,
            TRANSPORT,
            "crates/storage",
            "crates/engine",
            "crates/machine",
            // Simulations run at once: pure functions, on no shard's data.
            "crates/cli/src/coflow/runs",
            "bench",
        ],
        except_tests: true,
        argued_by: None,
        way_out: "return an effect and let the executor run it, or answer `pending`",
    },
    Rule {
        name: "socket",
        patterns: &[
            "TcpListener",
            "TcpStream",
            "UdpSocket",
            "UnixListener",
            "UnixStream",
            "UnixDatagram",
            "mio ::",
            "socket2 ::",
        ],
        inside: &[],
        except: &[
            TRANSPORT,
            "crates/engine",
            "crates/machine/src/network",
            // Bare sockets are what ours is compared with.
            "bench/src/limits/sockets",
        ],
        except_tests: true,
        argued_by: None,
        way_out: "send through exchange's transport",
    },
    Rule {
        name: "file",
        patterns: &["std :: fs", "fs ::", "File ::", "OpenOptions", "memmap2 ::"],
        inside: &[],
        except: &[
            "crates/storage",
            "crates/memory/src/cgroup",
            "crates/engine/src/settings",
            // Pipes and the standard input, which nobody can read by ranges.
            "crates/engine/src/grep/own",
            "crates/engine/src/cluster/certificates",
            "crates/engine/src/cluster/rendezvous",
            // Memory without a name, which the system hands out as a file, or as pages.
            "crates/memory/src/pages",
            "crates/exchange/src/transports/tcp/channel/memory/shared",
            "crates/machine",
            "crates/cli",
            "bench",
            "examples",
            "xtask",
        ],
        except_tests: true,
        argued_by: None,
        way_out: "take bytes as an argument, or write through storage",
    },
    Rule {
        name: "std-math",
        patterns: &[
            ". exp (",
            ". exp2 (",
            ". exp_m1 (",
            ". ln (",
            ". ln_1p (",
            ". log (",
            ". log2 (",
            ". log10 (",
            ". powf (",
            ". powi (",
            ". sin (",
            ". cos (",
            ". tan (",
            ". tanh (",
            ". sinh (",
            ". cosh (",
            ". cbrt (",
            ". hypot (",
            "f64 :: exp",
            "f64 :: ln",
            "f64 :: powf",
            "f64 :: powi",
            "f64 :: tanh",
            "f32 :: exp",
            "f32 :: ln",
            "f32 :: powf",
            "f32 :: powi",
            "f32 :: tanh",
            "libm ::",
        ],
        inside: &[
            "crates/operators",
            "crates/program",
            "crates/worker",
            "crates/exchange",
            "crates/engine",
            "python",
        ],
        except: &[],
        except_tests: true,
        argued_by: Some("// math:"),
        way_out: "std's result differs by platform: call our own function of crates/operators, or argue with `// math: …`",
    },
    Rule {
        name: "hash-order",
        patterns: &["*HashMap", "*HashSet"],
        inside: &[
            "crates/program",
            "crates/operators",
            "crates/worker",
            "crates/exchange",
            "crates/protocol",
        ],
        except: &[],
        except_tests: true,
        argued_by: Some("// order:"),
        way_out: "use a BTreeMap or dense indexes, or say with `// order: …` why its order cannot reach a result",
    },
    Rule {
        name: "print",
        patterns: &[
            "println !",
            "print !",
            "eprintln !",
            "eprint !",
            "io :: stdout",
            "io :: stderr",
        ],
        inside: &[],
        except: &["crates/cli", "bench", "examples", "xtask"],
        except_tests: true,
        argued_by: None,
        way_out: "return it, or use `tracing`: a library does not own its user's terminal",
    },
    Rule {
        name: "lock",
        patterns: &[". lock ( )"],
        inside: &["crates/worker/src", "crates/engine/src/cluster/worker"],
        except: &[],
        except_tests: true,
        argued_by: Some("// lock:"),
        way_out: "take it by `held::lock`, which counts it: who has it must not wait for an interpreter; or say with `// lock: …` why nobody can",
    },
    Rule {
        name: "interpreter",
        patterns: &[
            "Python :: attach",
            "Python :: try_attach",
            "Python :: with_gil",
            "Python :: assume_attached",
        ],
        inside: &["python"],
        except: &["python/src/interpreter"],
        except_tests: false,
        argued_by: None,
        way_out: "call `interpreter::attach`, which sees to it that no lock is held that a thread with the interpreter may want",
    },
    Rule {
        name: "pyo3",
        patterns: &["pyo3", "numpy ::"],
        inside: &[],
        except: &["python"],
        except_tests: false,
        argued_by: None,
        way_out: "bindings live in python/; the crates know no Python",
    },
];
