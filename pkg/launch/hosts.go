package launch

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// ParseHosts parses a list of ssh destinations, such as "a,me@b,node[01-04]", in the order of the
// nodes. It returns an error if a host occurs twice.
func ParseHosts(list string) ([]string, error) {
	var all []string
	for _, entry := range splitEntries(list) {
		user, names := launcher.SplitUser(entry)
		if strings.ContainsAny(user, " \t-@[]") || user == "" && strings.Contains(entry, "@") {
			return nil, fmt.Errorf("%q is not a user and a host, as in me@b", user)
		}
		hosts, err := launcher.ExpandNodeList(names, 0)
		if err != nil {
			return nil, err
		}
		for _, host := range hosts {
			if user != "" {
				host = user + "@" + host
			}
			all = append(all, host)
		}
	}
	return all, checkUnique(all)
}

// splitEntries splits a list at the commas that are not within brackets.
func splitEntries(list string) []string {
	depth := 0
	return strings.FieldsFunc(list, func(r rune) bool {
		switch r {
		case '[':
			depth++
		case ']':
			depth--
		}
		return r == ',' && depth == 0
	})
}

// checkUnique returns an error if a host occurs twice, because a machine runs only one daemon.
func checkUnique(destinations []string) error {
	seen := make(map[string]bool)
	for _, destination := range destinations {
		_, host := launcher.SplitUser(destination)
		if seen[host] {
			return fmt.Errorf("%s is listed twice, and each host has one daemon", host)
		}
		seen[host] = true
	}
	return nil
}

// ReadHosts parses the text of a host file. Each line has a host, or a range of hosts as in
// ParseHosts; # begins a comment. name is the name of the file, for errors. slots reports whether
// the file has slots, as for mpirun: they are ignored, because each host has one daemon.
func ReadHosts(name, text string) (all []string, slots bool, err error) {
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		hosts, err := ParseHosts(words[0])
		if err == nil {
			err = checkUnique(slices.Concat(all, hosts))
		}
		// Only slots may follow the host.
		for _, word := range words[1:] {
			if key, _, _ := strings.Cut(word, "="); err == nil && key != "slots" &&
				key != "max_slots" && key != "max-slots" {
				err = fmt.Errorf("%q is neither a comment nor slots=N: give one host per line", word)
			}
			slots = true
		}
		if err != nil {
			return nil, false, fmt.Errorf("cannot use %s:%d: %v", name, number, err)
		}
		all = append(all, hosts...)
	}
	return all, slots, nil
}

// SSH is how a launch reaches its hosts.
type SSH struct {
	Command string // ssh, with options
	Program string // path of bringupd on the hosts
}

// Argv returns the command that runs a subcommand of bringupd on a host. The user's own options come
// first, because ssh uses the first value of an option (ssh_config(5)).
func (s SSH) Argv(destination, subcommand string) []string {
	return slices.Concat(strings.Fields(s.Command), []string{
		"-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10",
		"-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3",
		destination, "exec " + textutil.QuoteShellWord(s.Program) + " " + subcommand,
	})
}

// ExplainExit explains an exit code of ssh before the daemon has started.
func (s SSH) ExplainExit(code int, host, reason string) string {
	if code != 255 {
		return fmt.Sprintf("cannot find bringupd on %s: %s; install it there at %s, or give --remote-program",
			host, reason, s.Program)
	}
	try := append(strings.Fields(s.Command), "-o", "BatchMode=yes", host, "true")
	return fmt.Sprintf("cannot reach %s: %s; try: %s", host, reason, textutil.FormatCommand(try...))
}
