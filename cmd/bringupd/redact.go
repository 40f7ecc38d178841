package main

import (
	"regexp"
	"strings"
	"sync"
)

const (
	hiddenValue = "…"
	secretName  = `[\w.-]*(?:token|key|secret|password)[\w.-]*`
	// What follows a name: pieces in quotes, which may be escaped themselves
	// where the text has been quoted before, and pieces without.
	secretValue = `(?:\\"(?:[^\\]|\\[^"])*\\"|"(?:[^"\\]|\\.)*"|'[^']*'|[^\s"'\\]|\\.)+`
)

var (
	secretFlag = onDemand(`(?i)^--?` + secretName + `$`)
	secretPair = onDemand(`(?i)^(` + secretName + `=)`)
	// A switch may be named like a secret, and have the flag of one behind it.
	secretInText = onDemand(`(?i)(` + secretName + `=|(?:--?` + secretName + `\s+)+)` + secretValue)
	secretInURL  = onDemand(`(://)[^/\s@]*(@)`)
)

// onDemand compiles a pattern when it is first asked for, which few commands do.
func onDemand(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// redact hides, in a text such as a shell command, the values of NAME=VALUE and
// of --name VALUE where the name speaks of a secret, and the user of a URL.
func redact(text string) string {
	text = secretInText().ReplaceAllString(text, "${1}"+hiddenValue)
	return secretInURL().ReplaceAllString(text, "${1}"+hiddenValue+"${2}")
}

// redactArgs does the same for arguments, each of them as a whole.
func redactArgs(args []string) []string {
	out := make([]string, len(args))
	for i, arg := range args {
		switch pair := secretPair().FindString(arg); {
		case i > 0 && secretFlag().MatchString(args[i-1]):
			out[i] = hiddenValue
		case pair != "":
			out[i] = pair + hiddenValue
		default:
			out[i] = redact(arg)
		}
	}
	return out
}

// oneLine keeps what is printed for people on one line.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", `\n`) }
