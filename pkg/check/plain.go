package check

import "github.com/bringupd/bringupd/pkg/prose"

// mostShown bounds one text of a finding, in characters.
const mostShown = 300

// plain makes a text fit for one line of a terminal: what a device, a file or another node has told may hold anything.
func plain(text string) string { return prose.Line(text, mostShown) }
