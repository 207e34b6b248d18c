//! The terminal while it shows a picture that changes. Dropping it gives the terminal back as it was.

use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::style::Print;
use crossterm::terminal::{
    self, Clear, ClearType, DisableLineWrap, EnableLineWrap, EnterAlternateScreen,
    LeaveAlternateScreen,
};
use crossterm::{cursor, execute, queue};
use std::io::{BufWriter, Result, Write};
use std::time::{Duration, Instant};

/// How often it is looked whether the process has to end.
const LOOKS: Duration = Duration::from_millis(100);

/// Lines of a terminal that does not say how many it has.
const HEIGHT: u16 = 24;

/// What the user wants.
pub(super) enum Wish {
    None,
    /// The same again: the terminal has another size.
    Draw,
    End,
}

/// A picture goes out as a whole: parts of one would flicker.
pub(super) struct Screen<'a>(BufWriter<&'a mut dyn Write>);

impl<'a> Screen<'a> {
    /// Takes the terminal.
    pub(super) fn enter(out: &'a mut dyn Write) -> Result<Screen<'a>> {
        terminal::enable_raw_mode()?;
        let mut screen = Screen(BufWriter::new(out));
        execute!(
            screen.0,
            EnterAlternateScreen,
            cursor::Hide,
            DisableLineWrap
        )?;
        Ok(screen)
    }

    /// Shows as many lines as there is room for.
    pub(super) fn draw(&mut self, lines: &[String]) -> Result<()> {
        // A terminal whose size nobody has set says that it has none.
        let height = Some(terminal::size()?.1).filter(|height| *height > 0);
        let height = height.unwrap_or(HEIGHT);
        queue!(self.0, cursor::MoveTo(0, 0))?;
        for (row, line) in (0..height).zip(lines) {
            queue!(
                self.0,
                cursor::MoveTo(0, row),
                Print(line),
                Clear(ClearType::UntilNewLine)
            )?;
        }
        // What an earlier, longer picture has left.
        if let Ok(below) = u16::try_from(lines.len())
            && below < height
        {
            queue!(
                self.0,
                cursor::MoveTo(0, below),
                Clear(ClearType::FromCursorDown)
            )?;
        }
        self.0.flush()
    }

    /// Waits until the user wants something, or it is time for the next picture.
    pub(super) fn wish(
        &mut self,
        next: Instant,
        mut has_to_end: impl FnMut() -> bool,
    ) -> Result<Wish> {
        loop {
            if has_to_end() {
                return Ok(Wish::End);
            }
            let left = next.saturating_duration_since(Instant::now());
            if event::poll(left.min(LOOKS))? {
                match event::read()? {
                    Event::Key(key) if key.kind == KeyEventKind::Press => {
                        let with_control = key.modifiers.contains(KeyModifiers::CONTROL);
                        match key.code {
                            KeyCode::Char('c') if with_control => return Ok(Wish::End),
                            KeyCode::Char('q') | KeyCode::Esc => return Ok(Wish::End),
                            _ => {}
                        }
                    }
                    Event::Resize(..) => return Ok(Wish::Draw),
                    _ => {}
                }
            } else if Instant::now() >= next {
                return Ok(Wish::None);
            }
        }
    }
}

impl Drop for Screen<'_> {
    fn drop(&mut self) {
        let _ = execute!(self.0, EnableLineWrap, cursor::Show, LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}
