package main

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/roles"
)

// printPlan prints what a daemon would do: the configuration, as a file for --config, with the
// steps as comments. A mistake of the launch is part of the output, and determines the exit code.
func (inv *invocation) printPlan(all config.List, cfg deps.Config, role roles.DaemonRole, launch error) error {
	var b bytes.Buffer
	b.WriteString("# precedence: flag > variable > file > default; secrets are omitted\n")
	encoder := yaml.NewEncoder(&b)
	if err := encoder.Encode(all.Document(cfg.Framework.Name(), cfg.Driver)); err != nil {
		return fmt.Errorf("cannot print the configuration: %v", err)
	}
	if launch == nil {
		cfg.Driver = textutil.RedactArgs(cfg.Driver)
		b.WriteString("\n# The plan:\n")
		for _, line := range cfg.DescribePlan(role) {
			fmt.Fprintf(&b, "# - %s\n", textutil.RedactText(config.EscapeLineEnds(line)))
		}
	}
	if _, err := inv.streams.Out.Write(b.Bytes()); err != nil {
		return err
	}
	return launch
}
