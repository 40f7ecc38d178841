package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/config"
)

// FuzzSetting sets one of all settings to any value, and then to the resulting text.
func FuzzSetting(f *testing.F) {
	give := func(name, value string) (shown any, err error) {
		s := newOptions().daemonSettings().FindSetting(name)
		s.OfferValues(config.SourceFlag, "", value)
		err = s.ApplyValues()
		return s.CurrentValue(), err
	}
	for _, s := range newOptions().daemonSettings() {
		f.Add(s.Name, "")
	}
	f.Add("nproc-per-node", "4\n")
	f.Fuzz(func(t *testing.T, name, value string) {
		s := newOptions().daemonSettings().FindSetting(name)
		if s == nil {
			return
		}
		shown, err := give(name, value)
		if err != nil {
			if !strings.HasPrefix(err.Error(),
				"cannot use --"+name+"="+config.EscapeLineEnds(value)+": ") || strings.Contains(err.Error(), "\n") {
				t.Errorf("the error is %v", err)
			}
			return
		}
		if s.IsRepeatable {
			return
		}
		again, err := give(name, fmt.Sprint(shown))
		if err != nil || again != shown {
			t.Errorf("--%s=%s is %v, which is %v: %v", name, value, shown, again, err)
		}
	})
}
