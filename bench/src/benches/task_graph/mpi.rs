//! The stencil beside MPI: a small program in C, built and run by what the machine has.

use crate::task_graph::{Graph, Kernel, Pattern};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

const SOURCE: &str = include_str!("../../../peers/stencil_mpi.c");

/// The program, built in a folder that goes with it.
pub(super) struct Mpi(Folder);

/// A folder that is removed when it is dropped.
struct Folder(PathBuf);

/// What all ranks did together.
#[derive(Debug, PartialEq)]
pub(super) struct Ran {
    pub(super) wall: Duration,
    tasks: u64,
    inputs: u64,
    mismatches: u64,
}

impl Mpi {
    /// Builds the program, and tries it on so many ranks. Where there is no MPI, or it does not run here: why.
    pub(super) fn build(ranks: u32) -> Result<Mpi, String> {
        let name = format!("brambling-mpi-{}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(name));
        let cannot = |error| format!("{}: {error}", folder.0.display());
        let source = folder.0.join("stencil.c");
        std::fs::create_dir(&folder.0).map_err(cannot)?;
        std::fs::write(&source, SOURCE).map_err(cannot)?;
        let program = folder.0.join("stencil");
        output_of(Command::new("mpicc").args([
            "-O3".as_ref(),
            source.as_os_str(),
            "-o".as_ref(),
            program.as_os_str(),
        ]))?;
        let mpi = Mpi(folder);
        let graph = Graph::new(Pattern::Stencil1d, ranks as usize, 2);
        mpi.run(&graph, Kernel::Empty, ranks)?;
        Ok(mpi)
    }

    /// Runs a stencil with `kernel` in every task on so many ranks, of which each needs a column.
    pub(super) fn run(&self, graph: &Graph, kernel: Kernel, ranks: u32) -> Result<Ran, String> {
        let iterations = match kernel {
            Kernel::Empty => 0,
            Kernel::Compute { iterations } => iterations,
        };
        let sizes = [graph.width(), graph.timesteps()].map(|size| size.to_string());
        let mut command = Command::new("mpirun");
        command.args(["-n", &ranks.to_string()]);
        command.arg(self.0.0.join("stencil"));
        command.args(sizes).arg(iterations.to_string());
        let output = output_of(&mut command)?;
        parse(&output).ok_or_else(|| format!("mpirun printed {output:?}, and no figures"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What stays behind is a few kilobytes in the system's folder for such things.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Ran {
    /// Whether every task of `graph` ran once, read all its inputs and found them right.
    pub(super) fn is_right(&self, graph: &Graph) -> bool {
        let found = (self.tasks, self.inputs, self.mismatches);
        found == (graph.tasks(), graph.inputs(), 0)
    }
}

/// What a command prints. Where it cannot be run, or fails: why, in a line.
fn output_of(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    // Ctrl-C goes to the processes of the terminal's group. The bench hears of it and ends by itself; a command that
    // died of it would look like one that fails.
    let output = command.stdin(Stdio::null()).process_group(0).output();
    let output = output.map_err(|error| match error.kind() {
        ErrorKind::NotFound => format!("{name} is not on the PATH"),
        _ => format!("{name}: {error}"),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    // Open MPI frames what it says by lines of dashes.
    let first = said.lines().find(|line| line.contains(char::is_alphabetic));
    Err(format!(
        "{name} failed ({}): {}",
        output.status,
        first.unwrap_or("it did not say why").trim()
    ))
}

/// The line of the program among what else is printed.
fn parse(output: &str) -> Option<Ran> {
    let mut lines = output.lines();
    let line = lines.find_map(|line| line.strip_prefix("stencil_1d "))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let [tasks, inputs, mismatches, seconds] = words.as_slice() else {
        return None;
    };
    Some(Ran {
        wall: Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?,
        tasks: tasks.parse().ok()?,
        inputs: inputs.parse().ok()?,
        mismatches: mismatches.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_stand_in_a_line_among_others() {
        let ran = parse("a warning\nstencil_1d 6 14 0 0.000002500\nbye\n").unwrap();
        assert_eq!(ran.wall, Duration::from_nanos(2_500));
        // Three points in two timesteps: the second reads 2, 3 and 2 of the first.
        assert!(!ran.is_right(&Graph::new(Pattern::Stencil1d, 3, 2)));
        let right = parse("stencil_1d 6 7 0 1").unwrap();
        assert!(right.is_right(&Graph::new(Pattern::Stencil1d, 3, 2)));
        let wrong = parse("stencil_1d 6 7 1 1").unwrap();
        assert!(!wrong.is_right(&Graph::new(Pattern::Stencil1d, 3, 2)));
        for output in [
            "",
            "stencil_1d",
            "stencil_1d 6 7 0",
            "stencil_1d 6 7 0 1 2",
            "stencil_1d 6 7 0 -1",
            "stencil_1d 6 7 none 1",
        ] {
            assert_eq!(parse(output), None, "{output:?}");
        }
    }

    #[test]
    fn a_missing_and_a_failing_command_say_why() {
        let output = |name: &str, script: &str| output_of(Command::new(name).args(["-c", script]));
        assert_eq!(output("sh", "echo here"), Ok("here\n".to_owned()));
        assert_eq!(
            output("no-such-mpicc", ""),
            Err("no-such-mpicc is not on the PATH".to_owned())
        );
        assert_eq!(
            output("sh", "echo ----- >&2; echo ' No slots.' >&2; exit 3"),
            Err("sh failed (exit status: 3): No slots.".to_owned())
        );
        assert_eq!(
            output("sh", "exit 1"),
            Err("sh failed (exit status: 1): it did not say why".to_owned())
        );
    }

    /// Where MPI is installed its program is right on any number of ranks; elsewhere its absence is told.
    #[test]
    fn the_program_is_right_or_its_absence_is_told() {
        let mpi = match Mpi::build(2) {
            Ok(mpi) => mpi,
            Err(why) => return assert!(why.contains("mpi"), "{why}"),
        };
        for (width, timesteps, ranks) in [(2, 50, 2), (5, 20, 2), (16, 20, 1), (2, 1, 2)] {
            let graph = Graph::new(Pattern::Stencil1d, width, timesteps);
            let kernel = Kernel::Compute { iterations: 3 };
            let ran = mpi.run(&graph, kernel, ranks).unwrap();
            assert!(ran.is_right(&graph), "{graph:?} on {ranks}: {ran:?}");
        }
        let folder = mpi.0.0.clone();
        drop(mpi);
        assert!(!folder.exists());
    }
}
