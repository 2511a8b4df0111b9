package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"sluis/gate"
	"sluis/views"
	"sluis/views/i18n"
	"sluis/web"
)

// IntegrationDesk lists integrations and switches them. A switch is bound to
// the version that the person saw.
type IntegrationDesk interface {
	Integrations(ctx context.Context) ([]gate.Integration, error)
	SetMode(ctx context.Context, by gate.Actor, id string, mode gate.Mode, version int64, note string) error
	SetFrozen(ctx context.Context, by gate.Actor, id string, frozen bool, version int64, note string) error
}

// modes are the modes of an integration, the safest last.
var modes = []gate.Mode{gate.ModeOff, gate.ModeShadow, gate.ModeEnforce}

// switchForm is what was typed for an integration when a switch did not go
// through.
type switchForm struct {
	id       string
	freeze   bool // it was the other form
	mode     gate.Mode
	note     string
	failure  string
	conflict string
}

func (r recovery) integrations(c *web.Context) error {
	return r.integrationsPage(c, http.StatusOK, switchForm{})
}

func (r recovery) integrationsPage(c *web.Context, status int, typed switchForm) error {
	list, err := r.gate.Integrations(c.Ctx())
	if err != nil {
		return err
	}
	p := views.IntegrationsPage{Page: c.Page("integrations.title", "integrations"), Empty: views.Empty{Text: c.T("integrations.none")}, Conflict: typed.conflict}
	p.Page.Path = link(c.Integration(), "/integrations") // also in answer to a post
	for _, i := range list {
		p.List = append(p.List, integrationView(c, i, typed))
	}
	return c.Render(status, views.Integrations(p))
}

func integrationView(c *web.Context, i gate.Integration, typed switchForm) views.IntegrationView {
	ctx := c.Ctx()
	v := views.IntegrationView{
		ID: i.ID, Name: i.Name, Frozen: i.Frozen, Version: i.Version, UpdatedAt: i.UpdatedAt, UpdatedBy: i.UpdatedBy,
		Mode: views.Mark{Tone: modeTone(i), Text: modeName(ctx, i.Mode)}, Promise: i18n.T(ctx, "integrations.promise."+string(i.Mode)),
		Facts: []views.Fact{
			{Name: c.T("integrations.skew"), Text: i18n.Duration(i.MaxSkew)},
			{Name: c.T("integrations.target"), Text: c.T("integrations.target_keys", "Integration", i.ID)},
		},
		ModeAction:   link(i.ID, "/integrations/"+segment(i.ID)+"/mode"),
		FreezeAction: link(i.ID, "/integrations/"+segment(i.ID)+"/freeze"),
		ModeDisabled: refusedRole(c, web.Planners, "integrations.mode_refused"), FreezeDisabled: refusedRole(c, web.Admins, "integrations.freeze_refused"),
		AuditURL: link(i.ID, "/audit", "object", i.ID),
	}
	chosen := i.Mode
	if typed.id == i.ID && typed.freeze {
		v.FreezeNote, v.FreezeError = typed.note, typed.failure
	} else if typed.id == i.ID {
		v.ModeNote, v.ModeError = typed.note, typed.failure
		if typed.mode.Valid() {
			chosen = typed.mode
		}
	}
	for _, m := range modes {
		v.Modes = append(v.Modes, views.ModeChoice{Value: string(m), Name: modeName(ctx, m), Explain: i18n.T(ctx, "integrations.explain."+string(m)),
			Current: m == i.Mode, Checked: m == chosen})
	}
	return v
}

func modeTone(i gate.Integration) string {
	if i.Mode == gate.ModeEnforce && !i.Frozen {
		return "ok"
	}
	return "warn"
}

// readSwitch reads what both switches carry: the version that the person saw,
// and why they switch.
func readSwitch(c *web.Context) (form switchForm, version int64, values func(string) string, err error) {
	posted, err := c.Form()
	if err != nil {
		return form, 0, nil, err
	}
	if form.id, err = param(c, "id"); err != nil {
		return form, 0, nil, err
	}
	form.note = strings.TrimSpace(posted.Get("note"))
	version, err = number(posted.Get("version"))
	return form, version, posted.Get, err
}

func (r recovery) switchMode(c *web.Context) error {
	form, version, value, err := readSwitch(c)
	if err != nil {
		return err
	}
	form.mode = gate.Mode(value("mode"))
	if !form.mode.Valid() {
		return &web.Error{Status: http.StatusBadRequest, MessageID: "error.bad_request", Err: fmt.Errorf("mode %q", form.mode)}
	}
	return r.switched(c, form, "integrations.flash.mode", func() error {
		return r.gate.SetMode(c.Ctx(), person(c), form.id, form.mode, version, form.note)
	})
}

func (r recovery) freeze(c *web.Context) error {
	form, version, value, err := readSwitch(c)
	if err != nil {
		return err
	}
	form.freeze = true
	frozen, message := value("frozen") == "yes", "integrations.flash.thawed"
	if frozen {
		message = "integrations.flash.frozen"
	}
	return r.switched(c, form, message, func() error {
		return r.gate.SetFrozen(c.Ctx(), person(c), form.id, frozen, version, form.note)
	})
}

// switched carries a switch out. Without a note, or where somebody switched
// before, nothing happens and what was typed stays.
func (r recovery) switched(c *web.Context, form switchForm, message string, do func() error) error {
	if form.note == "" {
		form.failure = c.T("item.note_required")
		return r.integrationsPage(c, http.StatusUnprocessableEntity, form)
	}
	err := do()
	var decided *gate.DecidedError
	switch {
	case errors.As(err, &decided):
		form.conflict = c.T("integrations.lost", "ID", form.id, "By", decided.By, "At", i18n.Time(c.Ctx(), decided.At))
		return r.integrationsPage(c, http.StatusConflict, form)
	case errors.Is(err, gate.ErrStale):
		form.conflict = c.T("desk.stale")
		return r.integrationsPage(c, http.StatusConflict, form)
	case err != nil:
		return err
	}
	if err := c.Flash(views.Flash{Tone: views.ToneOK, ID: message, Args: []string{"ID", form.id, "Mode", modeName(c.Ctx(), form.mode)}}); err != nil {
		return err
	}
	return c.Redirect(link(form.id, "/integrations"))
}
