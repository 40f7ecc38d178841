package launcher

import (
	"fmt"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
)

// DescribeGrace describes the time that a driver has to save its work: the one that the user has
// given, or a shorter one, and then what limits it.
func (l Launcher) DescribeGrace(actual, given time.Duration) string {
	if actual >= given {
		return textutil.FlagDuration(given) + " (--driver-grace)"
	}
	text := fmt.Sprintf("%s of its --driver-grace=%s", textutil.FlagDuration(actual.Round(time.Second/10)), textutil.FlagDuration(given))
	if f := l.Facts(); f.KillDelay > 0 {
		text += fmt.Sprintf(", because %s kills the job %s after TERM (%s)",
			l.CommandHints("").Title, textutil.FlagDuration(f.KillDelay), strings.ReplaceAll(f.KillSetting, "`", ""))
	}
	return text
}
