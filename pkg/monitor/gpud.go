package monitor

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// gpudPort is where gpud listens unless it is told otherwise: pkg/config/default.go of leptonai/gpud v0.9.2. What it
// answers there is of its api/v1/types.go and pkg/server/handlers_components.go.
const gpudPort = 15132

// mostAnswer bounds an answer, in bytes: with all its details gpud has some kilobytes a GPU.
const mostAnswer = 4 << 20

// component is a part of a node that gpud looks at.
type component struct {
	Name   string  `json:"component"`
	States []state `json:"states"`
}

type state struct {
	Name    string `json:"name"`
	Health  string `json:"health"`
	Reason  string `json:"reason"`
	Error   string `json:"error"`
	Suggest struct {
		Actions []string `json:"repair_actions"`
	} `json:"suggested_actions"`
}

// The healths that mean something to us. By its words degraded is what does not affect a job; unhealthy is the rest.
const (
	healthy   = "Healthy"
	unhealthy = "Unhealthy"
	degraded  = "Degraded"
)

// askGpud asks for the states that gpud has last found its components in, which makes it look at nothing.
func askGpud(ctx context.Context, port int) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/v1/states", port), nil)
	if err != nil {
		return answer{}, err
	}
	client := http.Client{
		Transport: &http.Transport{
			// gpud signs a new certificate for itself with each start: who it is was told by the socket's owner.
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
			DisableKeepAlives: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return answer{}, fmt.Errorf("cannot ask gpud: %v", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return answer{}, fmt.Errorf("cannot ask gpud for its states: it answers %s", response.Status)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, mostAnswer))
	if err != nil {
		return answer{}, fmt.Errorf("cannot read gpud's states: %v", err)
	}
	return readGpud(body)
}

// readGpud reads an answer.
func readGpud(body []byte) (answer, error) {
	var components []component
	if err := json.Unmarshal(body, &components); err != nil {
		return answer{}, fmt.Errorf("cannot read gpud's states: %v", err)
	}
	told, well := answer{}, 0
	for _, health := range []string{unhealthy, degraded} {
		for _, c := range components {
			for _, s := range c.States {
				if s.Health == health {
					told.woes = append(told.woes, s.woe(c.Name))
				}
			}
		}
	}
	for _, c := range components {
		if len(c.States) > 0 && !slices.ContainsFunc(c.States, func(s state) bool { return s.Health != healthy }) {
			well++
		}
	}
	switch {
	case well == len(components):
		told.well = fmt.Sprintf("%d components are healthy", well)
	default:
		told.well = fmt.Sprintf("%d of %d components are healthy, and nothing is known of the others yet", well, len(components))
	}
	if len(told.woes) == 0 && well == 0 {
		return answer{}, fmt.Errorf("cannot tell by gpud: it knows nothing of its %d components yet", len(components))
	}
	return told, nil
}

// woe is what a state that is not healthy says.
func (s state) woe(component string) woe {
	what := component
	if s.Name != "" && s.Name != component {
		what += " (" + s.Name + ")"
	}
	said := what + " is " + strings.ToLower(s.Health)
	if why := cmp.Or(s.Reason, s.Error); why != "" {
		said += ": " + why
	}
	if s.Reason != "" && s.Error != "" {
		said += " (" + s.Error + ")"
	}
	hints := []string{"see what gpud says of it on the node"}
	for _, action := range s.Suggest.Actions {
		if words := repairs[action]; words != "" {
			hints = append(hints, "it suggests to "+words)
		}
	}
	return woe{said, strings.Join(hints, "; ")}
}

// repairs are gpud's RepairActionTypes in words, but for the one that nothing is to be done.
var repairs = map[string]string{
	"REBOOT_SYSTEM":          "reboot the node",
	"HARDWARE_INSPECTION":    "have the hardware inspected",
	"CHECK_USER_APP_AND_GPU": "look at the program that ran, and test the GPU",
}
