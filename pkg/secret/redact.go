// Package secret hides what nobody else is to read in texts that are shown.
package secret

import "github.com/bringupd/bringupd/pkg/pattern"

const (
	hiddenValue = "…"
	secretName  = `[\w.-]*(?:token|key|secret|password)[\w.-]*`
	// What follows a name: pieces in quotes, which may be escaped themselves
	// where the text has been quoted before, and pieces without.
	secretValue = `(?:\\"(?:[^\\]|\\[^"])*\\"|"(?:[^"\\]|\\.)*"|'[^']*'|[^\s"'\\]|\\.)+`
)

var (
	secretFlag = pattern.New(`(?i)^--?` + secretName + `$`)
	secretPair = pattern.New(`(?i)^(` + secretName + `=)`)
	// A switch may be named like a secret, and have the flag of one behind it.
	secretInText = pattern.New(`(?i)(` + secretName + `=|(?:--?` + secretName + `\s+)+)` + secretValue)
	secretInURL  = pattern.New(`(://)[^/\s@]*(@)`)
)

// Redact hides, in a text such as a shell command, the values of NAME=VALUE and
// of --name VALUE where the name speaks of a secret, and the user of a URL.
func Redact(text string) string {
	text = secretInText().ReplaceAllString(text, "${1}"+hiddenValue)
	return secretInURL().ReplaceAllString(text, "${1}"+hiddenValue+"${2}")
}

// RedactArgs does the same for arguments, each of them as a whole.
func RedactArgs(args []string) []string {
	out := make([]string, len(args))
	for i, arg := range args {
		switch pair := secretPair().FindString(arg); {
		case i > 0 && secretFlag().MatchString(args[i-1]):
			out[i] = hiddenValue
		case pair != "":
			out[i] = pair + hiddenValue
		default:
			out[i] = Redact(arg)
		}
	}
	return out
}
