package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/health"
)

// TestDocs verifies that the manual page and docs/cli.md equal the text that the program generates.
func TestDocs(t *testing.T) {
	app := (&invocation{}).newApp()
	for path, text := range map[string]string{"../../docs/cli.md": markdown(app),
		"../../docs/bringupd.1": manual(app)} {
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if old, err := os.ReadFile(path); err != nil || string(old) != text {
			t.Errorf("%s is stale: run go generate ./cmd/bringupd (%v)", path, err)
		}
	}
}

// about is the description of the program: the first sentence of its help.
var about, _, _ = strings.Cut(strings.ReplaceAll(overviewText(&cli.App{}), "\n", " "), "  ")

// subcommand is the reference of a subcommand, for docs/cli.md and for the manual page.
type subcommand struct {
	*cli.Command
	sources string      // how its flags can be given; empty without flags
	own     config.List // flags
	shared  []string    // flags that run has, too, with the same description
}

func reference(app *cli.App) (all []subcommand) {
	run := newOptions().daemonSettings()
	for _, command := range app.VisibleCommands() {
		one := subcommand{Command: command}
		for _, s := range visibleSettings(command) {
			of := run.FindSetting(s.Name)
			if command.Name != "run" && of != nil && !of.Hidden && of.Usage == s.Usage {
				one.shared = append(one.shared, "--"+s.Name)
			} else {
				one.own = append(one.own, s)
			}
			one.sources = describeSources(visibleSettings(command))
		}
		all = append(all, one)
	}
	return all
}

// write writes the flags: a heading before the first flag of each, and the shared ones at the end.
func (c subcommand) write(heading func(string), flag func(*config.Setting)) {
	last := ""
	for _, s := range c.own {
		if s.Category != last {
			last = s.Category
			heading(last)
		}
		flag(s)
	}
}

// markdown returns docs/cli.md.
func markdown(app *cli.App) string {
	cell := strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`).Replace
	var b strings.Builder
	b.WriteString("<!-- Written by go generate ./cmd/bringupd: change the program, not this " +
		"file. -->\n\n# The command line\n\nThis page lists all subcommands, flags and " +
		"exit codes, for users who look one up.\n\n" + about + "\n")
	for _, c := range reference(app) {
		usage := strings.ReplaceAll(c.UsageText, "\n", "\n    ")
		fmt.Fprintf(&b, "\n## bringupd %s\n\n%s.\n\n    %s\n", c.Name, capital(c.Usage), usage)
		for _, text := range []string{c.Description, c.sources} {
			if text != "" {
				b.WriteString("\n" + text + "\n")
			}
		}
		c.write(func(heading string) { fmt.Fprintf(&b, "\n| %s | |\n|---|---|\n", heading) },
			func(s *config.Setting) { fmt.Fprintf(&b, "| `%s` | %s |\n", s.HelpSyntax(), cell(s.HelpText())) })
		if len(c.shared) > 0 {
			fmt.Fprintf(&b, "\nAs with bringupd run: `%s`.\n", strings.Join(c.shared, "`, `"))
		}
	}
	return b.String() + "\n## Exit codes\n\n" + codeTable()
}

func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// manual returns the manual page, in the macros of man(7).
func manual(app *cli.App) string {
	var b, synopsis, commands, options strings.Builder
	for _, c := range reference(app) {
		synopsis.WriteString(roff(c.UsageText) + "\n")
		fmt.Fprintf(&commands, ".TP\n.B %s\n%s\n", roff(c.Name), roff(capital(c.Usage)+"."))
		if c.Description != "" {
			commands.WriteString(".IP\n" + roff(c.Description) + "\n")
		}
		if c.sources == "" {
			continue
		}
		fmt.Fprintf(&options, ".SH \"OPTIONS OF %s\"\n%s\n", strings.ToUpper(c.Name), roff(c.sources))
		c.write(func(heading string) { fmt.Fprintf(&options, ".SS \"%s\"\n", roff(heading)) },
			func(s *config.Setting) {
				fmt.Fprintf(&options, ".TP\n.B %s\n%s\n", roff(s.HelpSyntax()), roff(s.HelpText()))
			})
		if len(c.shared) > 0 {
			options.WriteString(".PP\n" + roff("As with bringupd run: "+strings.Join(c.shared, ", ")+".") + "\n")
		}
	}
	fmt.Fprintf(&b, `.\" Written by go generate ./cmd/bringupd: change the program, not this file.
.TH BRINGUPD 1 "" bringupd "User Commands"
.SH NAME
bringupd \- start and supervise a job on all nodes of a batch allocation
.SH SYNOPSIS
.nf
%s.fi
.SH DESCRIPTION
%s
.SH SUBCOMMANDS
%s%s.SH "EXIT STATUS"
%s
`, &synopsis, roff(about), &commands, &options, roff(capital(strings.TrimPrefix(codesTitle, "Exit codes: "))))
	for _, o := range health.OutcomeTable() {
		fmt.Fprintf(&b, ".TP\n.B %d\n%s\n", o.Code, roff(fmt.Sprintf("%s (requeue: %s)", o.Meaning, o.Requeue)))
	}
	_, text, _ := strings.Cut(overviewText(&cli.App{}), "Examples:\n")
	text, _, _ = strings.Cut(text, "\n\n")
	b.WriteString(".SH EXAMPLES\n.nf\n" + roff(strings.TrimSuffix(text, "\n")) +
		"\n.fi\n.SH \"SEE ALSO\"\n.BR srun (1),\n.BR sbatch (1)\n")
	return b.String()
}

// roff escapes a text so that it is shown unchanged: a dash can be copied, and no line begins with
// a request.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "~", `\(ti`, "^", `\(ha`,
		`"`, `\(dq`, "…", `\&...`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
