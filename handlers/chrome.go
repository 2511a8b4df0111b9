package handlers

import (
	"context"
	"errors"
	"fmt"

	"sluis/gate"
	"sluis/snapshots"
	"sluis/views"
	"sluis/views/i18n"
)

// ChromeGate counts what waits for a person.
type ChromeGate interface {
	IntegrationReader
	CountItems(ctx context.Context, f gate.ItemFilter) (int64, error)
	CountPairs(ctx context.Context, f gate.PairFilter) (int64, error)
	OpenReservations(ctx context.Context, integration string, limit int) ([]gate.MutationRecord, error)
}

// ChromeSnapshots tells of a rollback that everyone has to know about.
type ChromeSnapshots interface {
	Banner(ctx context.Context, integration string) (*snapshots.Rollback, error)
}

// Chrome is what surrounds every page of an integration: the counts beside the
// navigation and the banners. What cannot be read is not known rather than
// zero; the error names it, and the rest stands.
func Chrome(ctx context.Context, g ChromeGate, s ChromeSnapshots, integration string) (views.Chrome, error) {
	chrome := views.Chrome{Counts: map[string]views.Count{}}
	if integration == "" {
		return chrome, nil
	}
	var errs []error
	count := func(key string, n int64, err error) {
		chrome.Counts[key] = views.Count{N: int(n), Known: err == nil}
		if err != nil {
			errs = append(errs, fmt.Errorf("count %s: %w", key, err))
		}
	}
	items, err := g.CountItems(ctx, gate.ItemFilter{Integration: integration, States: []gate.ItemState{gate.ItemOpen}})
	count("quarantine", items, err)
	pairs, err := g.CountPairs(ctx, gate.PairFilter{Integration: integration, States: []gate.PairState{gate.PairOpen}})
	count("pairs", pairs, err)
	open, err := uncertain(ctx, g, integration)
	count("inflight", open, err)
	if i, err := g.Integration(ctx, integration); err != nil {
		errs = append(errs, fmt.Errorf("integration: %w", err))
	} else {
		chrome.Banners = append(chrome.Banners, modeBanners(ctx, i)...)
	}
	if rb, err := s.Banner(ctx, integration); err != nil {
		errs = append(errs, fmt.Errorf("banner: %w", err))
	} else if rb != nil {
		chrome.Banners = append(chrome.Banners, rollbackBanner(ctx, *rb))
	}
	return chrome, errors.Join(errs...)
}

// uncertain counts what is in flight for too long and what has no known
// outcome; what is merely on its way waits for nobody.
func uncertain(ctx context.Context, g ChromeGate, integration string) (int64, error) {
	open, err := g.OpenReservations(ctx, integration, openReservations)
	if err != nil {
		return 0, err
	}
	var n int64
	now := i18n.Now(ctx)
	for _, m := range open {
		if m.State != gate.InFlight || now.Sub(m.ReservedAt) >= lookAfter {
			n++
		}
	}
	return n, nil
}

// modeBanners say what the gate does not do at the moment.
func modeBanners(ctx context.Context, i gate.Integration) []views.Banner {
	var list []views.Banner
	add := func(tone views.Tone, id string) {
		list = append(list, views.Banner{Tone: tone, Text: i18n.T(ctx, id, "Integration", i.ID),
			Href: link(i.ID, "/integrations"), LinkText: i18n.T(ctx, "nav.integrations")})
	}
	if i.Frozen {
		add(views.ToneWarn, "chrome.frozen")
	}
	switch i.Mode {
	case gate.ModeOff:
		add(views.ToneWarn, "chrome.off")
	case gate.ModeShadow:
		add(views.ToneInfo, "chrome.shadow")
	}
	return list
}

// rollbackBanner tells everyone for a day that records were changed back.
func rollbackBanner(ctx context.Context, rb snapshots.Rollback) views.Banner {
	b := views.Banner{Tone: views.ToneInfo, Href: link(rb.Integration, rollbackPath(rb.ID)), LinkText: i18n.T(ctx, "item.view_named", "Name", rollbackName(rb.ID))}
	at := rb.ApprovedAt
	switch rb.State {
	case snapshots.RollbackApplied:
		b.Tone, at = views.ToneOK, rb.AppliedAt
	case snapshots.RollbackStopped:
		b.Tone = views.ToneCrit
	}
	b.Text = i18n.T(ctx, "chrome.rollback."+string(rb.State), "Name", rollbackName(rb.ID), "By", rb.ApprovedBy, "At", i18n.Time(ctx, at),
		"Count", rb.Summary.Compensations)
	return b
}
