// @ts-check
/**
 * A client of the live broadcast: one file, no dependencies, for browsers and for Node 22 and newer. It connects again by
 * itself, subscribes again, and asks for what it missed in between.
 *
 *     import { LiveClient } from "https://live.example.com/live/client.js";
 *
 *     const live = new LiveClient("wss://live.example.com/ws", { token: async () => (await fetch("/live-token")).text() });
 *     live.onState = (state, why) => console.log(state, why);
 *     const stop = live.subscribe("event:E1", {
 *       onSnapshot: (positions) => positions.forEach(draw),
 *       onPosition: draw,                       // each position, those that were missed too
 *     });
 *
 * Positions are in the order in which they arrived. A tracker that was out of reach sends old fixes late: order by `ts`.
 *
 * @typedef {object} Position
 * @property {"position"} type
 * @property {string} topic
 * @property {string} deviceId
 * @property {number} lat
 * @property {number} lon
 * @property {number} ts epoch milliseconds of the fix
 * @property {number} [speed]
 * @property {number} [course]
 * @property {number} [accuracy]
 * @property {Record<string, unknown>} [attributes]
 *
 * @typedef {object} ListedEvent
 * @property {string} event
 * @property {string} topic
 * @property {number} devices
 *
 * @typedef {object} Handlers
 * @property {(position: Position) => void} [onPosition]
 * @property {(positions: Position[], complete: boolean) => void} [onSnapshot] the newest position of each device: at first, and
 *   after each outage. `complete` is false if positions were missed that the server no longer had.
 *
 * @typedef {"connecting" | "live" | "refused" | "closed"} State
 * "refused" needs somebody to act: `why` says what is wrong, and `code` is 4401 where a new token would help.
 *
 * @typedef {object} Watched
 * @property {Handlers} handlers
 * @property {Map<string, number>} recent when which fix came: after an outage some come again
 * @property {number} heardAt up to when everything has come; 0: there was no snapshot yet
 *
 * @typedef {object} Options
 * @property {string | (() => string | Promise<string>)} [token] asked for anew at each connection
 * @property {typeof WebSocket} [WebSocket]
 */

const FIRST_RETRY_MS = 500;
const LONGEST_RETRY_MS = 10_000;
const CONNECT_WITHIN_MS = 15_000;
const ASK_EVERY_MS = 10_000;
/** Nothing came for so long although we asked: the connection went away without a word, as on a train. */
const SILENT_MS = 30_000;
/** What is asked for again before the last sign of life: clocks differ a little. Positions that came before are left out. */
const OVERLAP_MS = 2_000;
const REFUSED = { 4401: "a token is needed", 4403: "this page may not connect" };

export class LiveClient {
  /**
   * @param {string} url of the WebSocket, like wss://host/ws
   * @param {Options} [options]
   */
  constructor(url, options = {}) {
    this.url = url;
    this.token = options.token ?? "";
    /** @type {(state: State, why: string, code: number) => void} */
    this.onState = () => {};
    /** @type {(events: ListedEvent[]) => void} the events that the token allows; asked for every ten seconds */
    this.onEvents = () => {};
    /** @type {(code: string, message: string) => void} the server refused something that was asked for */
    this.onError = (code, message) => console.warn(`live: ${code}: ${message}`);
    /** How far this machine's clock is ahead of the server's. */
    this.aheadMs = 0;
    /** @type {State} */
    this.state = "closed";
    this.#WebSocket = options.WebSocket ?? WebSocket;
    this.connect();
  }

  /** The server's time, in epoch milliseconds. */
  now() { return Date.now() - this.aheadMs; }

  /**
   * Watch a topic; whoever watched it before is replaced. Returns a function that stops it.
   * @param {string} topic like event:E1
   * @param {Handlers} handlers
   */
  subscribe(topic, handlers) {
    const watched = { handlers, recent: new Map(), heardAt: 0 };
    this.#topics.set(topic, watched);
    this.#ask(topic);
    return () => {
      if (this.#topics.get(topic) !== watched) return;
      this.#topics.delete(topic);
      this.#say({ type: "unsubscribe", topic });
    };
  }

  /** Connect now; after a refusal, with what `token` says by then. */
  connect() {
    this.#retryMs = FIRST_RETRY_MS;
    clearTimeout(this.#retry);
    this.#drop();
    this.#open();
  }

  /** End it. Nothing is called any more; `connect` begins again. */
  close() {
    clearTimeout(this.#retry);
    this.#drop();
    this.#show("closed", "", 1000);
  }

  // ---- private

  #WebSocket;
  /** @type {WebSocket | null} */
  #socket = null;
  /** @type {Map<string, Watched>} */
  #topics = new Map();
  #retryMs = FIRST_RETRY_MS;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #retry;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #watch;
  #heardAt = 0;
  #askedAt = 0;
  #knowsClock = false;

  async #open() {
    this.#show("connecting", "", 0);
    const socket = this.#socket = new this.#WebSocket(this.url);
    this.#heardAt = Date.now();
    let opened = false;
    this.#watch = setInterval(() => {
      const patience = opened ? SILENT_MS : CONNECT_WITHIN_MS;
      if (Date.now() - this.#heardAt > patience) this.#lost(socket, 1006, "silent");
      else if (opened) this.#askForEvents();
    }, ASK_EVERY_MS);
    socket.onclose = (event) => this.#lost(socket, event.code, event.reason);
    socket.onmessage = (event) => {
      if (this.#socket !== socket) return;
      this.#heardAt = Date.now();
      this.#hear(JSON.parse(event.data));
    };
    socket.onopen = async () => {
      let token = "";
      try {
        token = await (typeof this.token === "function" ? this.token() : this.token);
      } catch (error) {
        this.#lost(socket, 1006, `no token: ${error}`);
        return;
      }
      if (this.#socket !== socket) return;
      opened = true;
      this.#heardAt = Date.now();
      if (token) this.#say({ type: "auth", token });
      this.#askForEvents();
      for (const topic of this.#topics.keys()) this.#ask(topic);
    };
  }

  #drop() {
    clearInterval(this.#watch);
    const socket = this.#socket;
    this.#socket = null;
    if (socket) {
      socket.onclose = socket.onmessage = socket.onopen = null;
      socket.close();
    }
  }

  /** @param {WebSocket} socket @param {number} code @param {string} reason */
  #lost(socket, code, reason) {
    if (this.#socket !== socket) return;
    this.#drop();
    if (code in REFUSED) {
      this.#show("refused", `${REFUSED[/** @type {4401 | 4403} */ (code)]}${reason ? `: ${reason}` : ""}`, code);
      if (code === 4401 && typeof this.token !== "function") return; // the same token would be refused again
    } else {
      this.#show("connecting", code === 1008 ? "too slow" : reason, code);
    }
    this.#retry = setTimeout(() => this.#open(), this.#retryMs * (0.5 + Math.random() / 2));
    this.#retryMs = Math.min(LONGEST_RETRY_MS, this.#retryMs * 2);
  }

  /** @param {State} state @param {string} why @param {number} code */
  #show(state, why, code) {
    this.state = state;
    this.onState(state, why, code);
  }

  /** @param {object} message */
  #say(message) {
    if (this.#socket?.readyState === 1) this.#socket.send(JSON.stringify(message));
  }

  #askForEvents() {
    this.#askedAt = Date.now();
    this.#say({ type: "events" });
  }

  /** @param {string} topic */
  #ask(topic) {
    const heardAt = this.#topics.get(topic)?.heardAt ?? 0;
    const since = heardAt && this.#knowsClock ? { since: Math.max(0, heardAt - this.aheadMs - OVERLAP_MS) } : {};
    this.#say({ type: "subscribe", topic, ...since });
  }

  /** @param {any} message */
  #hear(message) {
    const watched = this.#topics.get(message.topic);
    if (message.type === "position") {
      if (watched) this.#put(watched, message);
    } else if (message.type === "subscribed") {
      if (!watched) return;
      this.#retryMs = FIRST_RETRY_MS;
      const missed = watched.heardAt > 0;
      for (const position of message.missed ?? []) this.#put(watched, position);
      for (const position of message.snapshot) this.#isNew(watched, position);
      watched.heardAt = this.#heardAt;
      this.#show("live", "", 0);
      watched.handlers.onSnapshot?.(message.snapshot, !missed || message.complete === true);
    } else if (message.type === "events") {
      this.aheadMs = Math.round((this.#askedAt + Date.now()) / 2 - message.now);
      this.#knowsClock = true;
      for (const watched of this.#topics.values()) this.#everythingCame(watched);
      if (this.state === "connecting" && !this.#topics.size) this.#show("live", "", 0);
      this.onEvents(message.events);
    } else if (message.type === "error") {
      this.onError(message.code, message.message);
    }
  }

  /** @param {Watched} watched @param {Position} position */
  #put(watched, position) {
    if (watched.heardAt) watched.heardAt = this.#heardAt;
    if (this.#isNew(watched, position)) watched.handlers.onPosition?.(position);
  }

  /** @param {Watched} watched @param {Position} position */
  #isNew(watched, position) {
    const fix = `${position.deviceId} ${position.ts}`;
    if (watched.recent.has(fix)) return false;
    watched.recent.set(fix, this.#heardAt);
    return true;
  }

  /** An answer came, and with it all that was sent before it. @param {Watched} watched */
  #everythingCame(watched) {
    if (!watched.heardAt) return;
    for (const [fix, cameAt] of watched.recent) {
      if (cameAt > watched.heardAt - 2 * OVERLAP_MS) break;
      watched.recent.delete(fix);
    }
    watched.heardAt = this.#heardAt;
  }
}
