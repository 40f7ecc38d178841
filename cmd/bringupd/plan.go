package main

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/internal/textutil/redact"
	"github.com/bringupd/bringupd/pkg/config/setting"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/roles"
)

// printPlan prints what a daemon would do: the configuration, as a file for --config, with the
// steps as comments. A mistake of the launch is part of the output, and determines the exit code.
func (inv *invocation) printPlan(all setting.List, cfg deps.Config, role roles.DaemonRole, launch error) error {
	var b bytes.Buffer
	b.WriteString("# precedence: flag > variable > file > default; secrets are omitted\n")
	encoder := yaml.NewEncoder(&b)
	if err := encoder.Encode(configDocument(all, cfg.Framework.Name(), cfg.Driver)); err != nil {
		return fmt.Errorf("cannot print the configuration: %v", err)
	}
	if launch == nil {
		cfg.Driver = redact.RedactArgs(cfg.Driver)
		b.WriteString("\n# The plan:\n")
		for _, line := range cfg.DescribePlan(role) {
			fmt.Fprintf(&b, "# - %s\n", redact.RedactText(setting.EscapeLineEnds(line)))
		}
	}
	if _, err := inv.streams.Out.Write(b.Bytes()); err != nil {
		return err
	}
	return launch
}

// configDocument returns the configuration as YAML, with the origin of each value. Settings that
// the subcommand determines are omitted.
func configDocument(all setting.List, framework string, driver []string) *yaml.Node {
	top := &yaml.Node{Kind: yaml.MappingNode}
	add := func(key, origin string, value *yaml.Node) {
		value.LineComment = origin
		top.Content = append(top.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, value)
	}
	for _, s := range all {
		if s.IsFileKey() && s.IsForFramework(framework) && s.Source != setting.SourceCommand {
			add(s.Name, s.SourceName(), yamlNode(s.CurrentValue()))
		}
	}
	add(setting.DriverFileKey, "", yamlNode(driver))
	return top
}

// yamlNode returns a value as YAML.
func yamlNode(value any) *yaml.Node {
	switch value := value.(type) {
	case string:
		return textNode(redact.RedactText(value))
	case []string:
		list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, word := range redact.RedactArgs(value) {
			list.Content = append(list.Content, textNode(word))
		}
		return list
	case nil:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: ""}
	default:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(value)}
	}
}

// textNode returns a text on one line, because YAML comments are misplaced beside several.
func textNode(text string) *yaml.Node {
	word := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	if text == "" || strings.Contains(text, "\n") {
		word.Style = yaml.DoubleQuotedStyle
	}
	return word
}

// givenFlags returns the settings of the job that are not defaults, as flags. It omits the run's
// name, which is known, and hides secrets and the values of variables.
func givenFlags(all setting.List) (flags []string) {
	defaults := newOptions().daemonSettings()
	for _, s := range all {
		usual := defaults.FindSetting(s.Name)
		if !s.IsSet() || !s.IsFileKey() || s.Name == "job-id" || usual == nil || reflect.DeepEqual(s.CurrentValue(), usual.CurrentValue()) {
			continue
		}
		values, isList := s.CurrentValue().([]string)
		if !isList {
			values = []string{fmt.Sprint(s.CurrentValue())}
		}
		for _, value := range values {
			switch name, _, isPair := strings.Cut(value, "="); {
			case s.IsBoolFlag() && value == "true":
				flags = append(flags, "--"+s.Name)
				continue
			case isPair && strings.HasPrefix(s.Placeholder, "NAME"):
				value = name + "=…"
			}
			flags = append(flags, "--"+s.Name+"="+value)
		}
	}
	return redact.RedactArgs(flags)
}
