package views

import "time"

// IntegrationsPage lists integrations with their switches.
type IntegrationsPage struct {
	Page
	List     []IntegrationView
	Empty    Empty
	Conflict string
}

// IntegrationView is one integration.
type IntegrationView struct {
	ID, Name       string
	Mode           Mark
	Frozen         bool
	Promise        string // what holds in this mode
	Facts          []Fact
	Version        int64
	UpdatedAt      time.Time
	UpdatedBy      string
	Modes          []ModeChoice
	ModeAction     string
	ModeNote       string
	ModeError      string
	ModeDisabled   string
	FreezeAction   string
	FreezeNote     string
	FreezeError    string
	FreezeDisabled string
	AuditURL       string
}

// ModeChoice is a mode in words.
type ModeChoice struct {
	Value   string
	Name    string
	Explain string
	Current bool
	Checked bool
}
