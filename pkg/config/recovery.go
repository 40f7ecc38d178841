package config

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/progress"
)

// OnFailureRequeue is the value of --on-failure that requeues the job.
const OnFailureRequeue = "requeue"

// RecoverySettings returns the settings about what follows a failure. They set after, and onFailure:
// what the launcher is asked to do.
func RecoverySettings(after *PostRun, onFailure *string) List {
	return List{
		NewNumber("restarts", &after.Restarts, 0, 1000,
			"maximum number of restarts within the allocation, on the remaining nodes, after a failure that "+
				"--restart-on selects"),
		NewChoice("restart-on", RestartTriggers, (*string)(&after.Rules.On),
			"failures that lead to a restart: node (a node was lost or failed a check), service (also a "+
				"service that dies while the driver runs), rank (as node, and a rank that fails), or any "+
				"(all of these, and a driver that fails)"),
		NewValue("no-restart-codes", "LIST", &after.Rules.NoCodes, parseCodes,
			func(codes []int) any { return textutil.FormatRanges(codes) },
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
	if isFlag("max-requeues") && onFailure != OnFailureRequeue {
		return fmt.Errorf("cannot use --max-requeues with --on-failure=%s: it is for --on-failure=requeue", onFailure)
	}
	return nil
}

// ProgressSetting returns the setting of the expression that finds steps.
func ProgressSetting(to *string) *Setting {
	return NewOptional("progress", "REGEX", to, func(text string) (string, error) {
		_, err := progress.ParsePattern(text)
		return text, err
	},
		"regular expression with one group around the number of a step in lines of the driver, of ranks or "+
			"of primary roles, for example 'iteration +(\\d+)/': shows progress and lost steps, and ends "+
			"restarts that gain none")
}

func parseCodes(list string) ([]int, error) {
	codes, err := textutil.ParseRanges(list, 255)
	if err != nil || slices.Contains(codes, 0) {
		return nil, errors.New("give exit codes from 1 to 255, as in 2,70-79")
	}
	return codes, nil
}
