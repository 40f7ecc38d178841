package roleview

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/roles"
)

// Format is a text with placeholders for an endpoint: %h is the host, %p the port, %a both as the
// address under which other nodes reach it, %i the index of the instance, and %% a percent sign.
type Format string

// AddressFormat is the format of the address alone.
const AddressFormat Format = "%a"

// ParseFormat returns a text as a format. It refuses unknown placeholders.
func ParseFormat(text string) (Format, error) {
	for rest := text; ; {
		_, after, found := strings.Cut(rest, "%")
		if !found {
			return Format(text), nil
		}
		if after == "" || !strings.Contains("hpai%", after[:1]) {
			return "", fmt.Errorf("cannot use --format=%s: after %% there must be h (host), p (port), a (both), i (index of the instance) or %%", text)
		}
		rest = after[1:]
	}
}

// Of returns the text for an endpoint.
func (f Format) Of(endpoint roles.Endpoint) string {
	return strings.NewReplacer("%%", "%", "%h", endpoint.Address, "%p", strconv.Itoa(endpoint.Port), "%a", endpoint.HostPort(), "%i", strconv.Itoa(endpoint.Instance)).Replace(string(f))
}

// PlannedEndpoints returns the endpoints of a role that are planned, whether they are ready or not,
// in the order of the instances. An empty name means all roles.
func (v *View) PlannedEndpoints(role string) (endpoints []roles.Endpoint, err error) {
	if role != "" && v.FindRole(role) == nil {
		return nil, v.refuseRole(role)
	}
	for i := range v.Roles {
		if role == "" || v.Roles[i].Name == role {
			endpoints = append(endpoints, v.Plan.Endpoints(v.Roles[i].RolePlan)...)
		}
	}
	return endpoints, nil
}

// refuseRole returns the error for a role that the run does not have.
func (v *View) refuseRole(name string) error {
	return fmt.Errorf("cannot show role %q: the roles of the run are %s", name, strings.Join(v.Names(), ", "))
}

// readyEndpoints returns the endpoints of the instances of a role that are in a list of numbers.
func (v *View) readyEndpoints(role *Role, ready []int) (endpoints []roles.Endpoint) {
	for _, endpoint := range v.Plan.Endpoints(role.RolePlan) {
		if slices.Contains(ready, role.Instances[endpoint.Instance].Number) {
			endpoints = append(endpoints, endpoint)
		}
	}
	return endpoints
}
