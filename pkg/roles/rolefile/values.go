package rolefile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/roles"
)

// maxNameLength is the length of the name of a role, a port or a step. It becomes a part of file
// names and variables.
const maxNameLength = 31

var namePattern = textutil.CompileLazily(`^[a-z][a-z0-9-]*$`)

// isName reports whether a text can be the name of a role, a port or a step.
func isName(text string) bool { return len(text) <= maxNameLength && namePattern().MatchString(text) }

// nameRule describes the names that isName accepts.
const nameRule = "give 1 to 31 lower-case letters, digits and hyphens, beginning with a letter"

// maxDuration is the longest duration of a key: longer than any job.
const maxDuration = 365 * 24 * time.Hour

// show returns a value for a message, on one line and not too long.
func show(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	text := []rune(node.Value)
	if len(text) > 40 {
		return strconv.Quote(string(text[:40])) + "…"
	}
	return strconv.Quote(node.Value)
}

func suggestNearest(word string, known []string) string {
	if len(word) > 2*maxNameLength {
		return ""
	}
	if best := textutil.NearestWord(word, known, min(len(word), max(3, len(word)/3))); best != "" {
		return "; did you mean " + best + "?"
	}
	return ""
}

// word returns what reads one of the accepted words. It reads an empty string after it has refused
// another.
func (l *errorList) word(accepted ...string) func(what string, node *yaml.Node) string {
	return func(what string, node *yaml.Node) string {
		if node.Kind == yaml.ScalarNode && slices.Contains(accepted, node.Value) {
			return node.Value
		}
		l.refuse(node, "%s is %s: give %s", what, show(node), joinOr(accepted))
		return ""
	}
}

type namedNumber struct {
	word   string
	number int
}

// number returns what reads a whole number, or the number that a word stands for. It reads least
// after it has refused another value.
func (l *errorList) number(least, limit int, words ...namedNumber) func(what string, node *yaml.Node) int {
	return func(what string, node *yaml.Node) int {
		if n, err := strconv.Atoi(node.Value); err == nil && n >= least && n <= limit {
			return n
		}
		accepted := []string{fmt.Sprintf("a whole number from %d to %d", least, limit)}
		for _, w := range words {
			if node.Value == w.word {
				return w.number
			}
			accepted = append(accepted, w.word)
		}
		l.refuse(node, "%s is %s: give %s", what, show(node), joinOr(accepted))
		return least
	}
}

// joinOr returns "a, b or c".
func joinOr(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// text returns a text that can be an argument or a variable of a process.
func (l *errorList) text(what string, node *yaml.Node) string {
	switch {
	case node.Kind != yaml.ScalarNode:
		l.refuse(node, "%s is %s: give a text", what, show(node))
	case strings.ContainsRune(node.Value, 0):
		l.refuse(node, "%s contains a NUL character: no program can get it", what)
	default:
		return node.Value
	}
	return ""
}

func (l *errorList) filledText(what string, node *yaml.Node) string {
	text := l.text(what, node)
	if node.Kind == yaml.ScalarNode && strings.TrimSpace(node.Value) == "" {
		l.refuse(node, "%s is empty: give a text, or omit the key", what)
	}
	return text
}

// command returns the shell text of a command. A list has the words of one program, in which only the
// variables of bringupd are replaced.
func (l *errorList) command(what string, node *yaml.Node) string {
	if node.Kind != yaml.SequenceNode || len(node.Content) == 0 {
		return l.filledText(what, node)
	}
	words := []string{"exec"}
	for _, item := range node.Content {
		words = append(words, roles.QuoteWord(l.text(what, resolveAlias(item))))
	}
	return strings.Join(words, " ")
}

func (l *errorList) name(what string, node *yaml.Node) string {
	if node.Kind != yaml.ScalarNode || !isName(node.Value) {
		l.refuse(node, "%s is %s: %s", what, show(node), nameRule)
		return ""
	}
	return node.Value
}

// nameList returns the names in a list, or the single name, without those that appear again.
func (l *errorList) nameList(what string, node *yaml.Node) []string {
	items := []*yaml.Node{node}
	if node.Kind == yaml.SequenceNode {
		items = node.Content
	}
	names := make([]string, 0, len(items))
	for _, item := range items {
		if name := l.name(what, resolveAlias(item)); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func (l *errorList) boolean(what string, node *yaml.Node) bool {
	return l.word("true", "false")(what, node) == "true"
}

// duration returns what reads a duration with a unit, of at least the given one.
func (l *errorList) duration(least time.Duration) func(what string, node *yaml.Node) time.Duration {
	return func(what string, node *yaml.Node) time.Duration {
		if d, ok := parseDuration(node.Value, least); ok {
			return d
		}
		rule := "a number with a unit, such as 90s, 5m or 1h"
		if least > 0 {
			rule += ", of at least " + textutil.FlagDuration(least)
		}
		l.refuse(node, "%s is %s: give %s", what, show(node), rule)
		return max(least, time.Second)
	}
}

func parseDuration(text string, least time.Duration) (d time.Duration, ok bool) {
	d, err := time.ParseDuration(text)
	return d, err == nil && d >= least && d <= maxDuration
}

// interval returns the ends of an interval of durations, such as 1s..30s, or the same duration
// twice.
func (l *errorList) interval(what string, node *yaml.Node, least time.Duration) (from, to time.Duration) {
	first, second, isInterval := strings.Cut(node.Value, "..")
	if !isInterval {
		second = first
	}
	from, isFirst := parseDuration(first, least)
	to, isSecond := parseDuration(second, least)
	if isFirst && isSecond && from <= to {
		return from, to
	}
	l.refuse(node, "%s is %s: give the first and the longest pause, such as 1s..30s", what, show(node))
	return least, least
}
