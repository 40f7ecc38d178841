package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/progress"
)

// OnFailureRequeue is the value of --on-failure that requeues the job.
const OnFailureRequeue = "requeue"

// RecoverySettings returns the settings about what follows a failure, which set after, and onFailure, what the launcher is asked to do.
func RecoverySettings(after *PostRun, onFailure *string) List {
	return List{
		NewNumber("restarts", &after.Restarts, 0, 1000,
			"maximum number of restarts within the allocation, on the remaining nodes, after a failure that "+
				"--restart-on selects"),
		NewChoice("restart-on", RestartTriggers, (*string)(&after.Rules.On),
			"failures that lead to a restart: node (a node was lost or failed a check), service (also a "+
				"service that dies while the driver runs), rank (as node, and a rank that fails), or any "+
				"(all of these, and a driver that fails)"),
		codesSetting("no-restart-codes", &after.Rules.NoCodes,
			"exit codes after which there is no restart, for example 2,70-79; 64 to 66, 126 and 127 always "+
				"are"),
		NewChoice("on-failure", []string{"exit", OnFailureRequeue}, onFailure,
			"exit, or requeue: let Slurm requeue the job without the failed nodes, after a failure that permits it"),
		NewNumber("max-requeues", &after.Requeue.Most, 0, math.MaxInt16,
			"maximum number of requeues; then the job ends with 69"),
	}
}

// ValidateRecovery returns an error for settings that contradict each other.
func ValidateRecovery(all List, after *PostRun, onFailure string) error {
	isFlag := func(name string) bool { return all.FindSetting(name).Source == SourceFlag }
	for _, name := range []string{"restart-on", "no-restart-codes"} {
		if isFlag(name) && after.Restarts == 0 {
			return fmt.Errorf("cannot use --%s without restarts: give --restarts", name)
		}
	}
	switch {
	case isFlag("max-requeues") && onFailure != OnFailureRequeue:
		return fmt.Errorf("cannot use --max-requeues with --on-failure=%s: it is for --on-failure=requeue", onFailure)
	}
	return nil
}

// ProgressSetting returns the setting of the expression that finds steps.
func ProgressSetting(to *string) *Setting {
	return NewValue("progress", "REGEX", to, func(text string) (string, error) {
		if text == "" {
			return "", nil
		}
		_, err := progress.ParsePattern(text)
		return text, err
	}, ShowUnchanged,
		"regular expression with one group around the number of a step in lines of the driver, of ranks or "+
			"of primary roles, for example 'iteration +(\\d+)/': shows progress and lost steps, and ends "+
			"restarts that gain none")
}

// codesSetting accepts a list of exit codes and ranges of them.
func codesSetting(name string, to *[]int, usage string) *Setting {
	return NewValue(name, "LIST", to, ParseCodes, func(codes []int) any { return FormatCodes(codes) }, usage)
}

// ParseCodes parses a list of exit codes from 1 to 255 and ranges of them, such as "2,70-79", and
// returns the codes sorted.
func ParseCodes(list string) (codes []int, err error) {
	for entry := range strings.SplitSeq(list, ",") {
		if list == "" {
			break
		}
		low, high, isRange := strings.Cut(entry, "-")
		if !isRange {
			high = low
		}
		first, err1 := strconv.ParseUint(low, 10, 8)
		last, err2 := strconv.ParseUint(high, 10, 8)
		if err1 != nil || err2 != nil || first == 0 || last < first {
			return nil, fmt.Errorf("%q is not an exit code: give numbers from 1 to 255, as in 2,70-79", entry)
		}
		for code := first; code <= last; code++ {
			codes = append(codes, int(code))
		}
	}
	slices.Sort(codes)
	return slices.Compact(codes), nil
}

// FormatCodes returns the form of sorted codes that ParseCodes parses.
func FormatCodes(codes []int) string {
	var parts []string
	for i := 0; i < len(codes); i++ {
		first := codes[i]
		for i+1 < len(codes) && codes[i+1] == codes[i]+1 {
			i++
		}
		if part := strconv.Itoa(first); codes[i] == first {
			parts = append(parts, part)
		} else {
			parts = append(parts, part+"-"+strconv.Itoa(codes[i]))
		}
	}
	return strings.Join(parts, ",")
}
