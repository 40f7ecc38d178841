package textutil

import (
	"strings"
)

const (
	hiddenValue = "…"
	secretName  = `[\w.-]*(?:token|key|secret|password)[\w.-]*`
	// A value after a name consists of pieces in quotes, which may be escaped if the text was quoted
	// before, and pieces without quotes.
	secretValue = `(?:\\"(?:[^\\]|\\[^"])*\\"|"(?:[^"\\]|\\.)*"|'[^']*'|[^\s"'\\]|\\.)+`
)

var (
	secretFlag = CompileLazily(`(?i)^--?` + secretName + `$`)
	secretPair = CompileLazily(`(?i)^(` + secretName + `=)`)
	// A switch may have the name of a secret, and be followed by the flag of one.
	secretInText = CompileLazily(`(?i)(` + secretName + `=|(?:--?` + secretName + `\s+)+)` + secretValue)
	secretInURL  = CompileLazily(`(://)[^/\s@]*(@)`)
	// The path of a webhook permits to send messages: hooks.slack.com/…, discord.com/api/webhooks/….
	secretWebhook = CompileLazily(`(?i)(://[^/\s]*hook[^/\s]*/|://[^/\s]+/api/webhooks/)[^\s"']+`)
)

// minHiddenPart is the length from which the beginning of a secret value is hidden, too: an excerpt may
// end in it.
const minHiddenPart = 8

// HideValues hides the values of secrets in a text.
func HideValues(text string, values []string) string {
	for _, value := range values {
		for length := len(value); length >= min(minHiddenPart, max(1, len(value))); length-- {
			text = strings.ReplaceAll(text, value[:length], hiddenValue)
		}
	}
	return text
}

// RedactText hides, in a text such as a shell command, the values of NAME=VALUE and of --name VALUE
// if the name is that of a secret, the user in a URL, and the path of a webhook.
func RedactText(text string) string {
	text = secretInText().ReplaceAllString(text, "${1}"+hiddenValue)
	text = secretWebhook().ReplaceAllString(text, "${1}"+hiddenValue)
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
			out[i] = RedactText(arg)
		}
	}
	return out
}
